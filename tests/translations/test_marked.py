"""Every text of the pages, the admin and the forms is marked for translation.

Templates: text and the attributes that browsers show must come from ``{% translate %}``,
``{% blocktranslate %}`` or a variable. Python: in the modules that make pages, labels are calls of
a gettext function, and so is every text of two words or more. Models and admin: the labels that
Django derives from names would be English, so each has to be given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import flatten
from django.core.exceptions import FieldDoesNotExist
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from tools.messages import KEYWORDS, PACKAGE

LETTERS = re.compile(r"[^\W\d_]{2,}")

# Templates.

TRANSLATED = re.compile(r"{%\s*blocktranslate\b.*?{%\s*endblocktranslate\s*%}", re.S)
COMMENTS = re.compile(r"{#.*?#}|{%\s*comment\b.*?{%\s*endcomment\s*%}", re.S)
TAGS = re.compile(r"{%.*?%}|{{.*?}}", re.S)
TEXT_IN_TAGS = re.compile(
    r"\|(?:default|default_if_none|yesno|pluralize|add):['\"][^'\"]*[a-z]|_\(", re.I
)
SHOWN_ATTRIBUTES = {"alt", "aria-description", "aria-label", "placeholder", "title"}
NAMES = {"MCP", "JSON", "CSV"}  # names, which are the same in every language


class Texts(HTMLParser):
    """Collects the text of a template and of its attributes, without styles and scripts."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.element = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.element = tag
        is_button = tag == "input" and dict(attrs).get("type") in BUTTONS
        shown = SHOWN_ATTRIBUTES | ({"value"} if is_button else set())
        self.found += [str(text) for name, text in attrs if name in shown]

    def handle_endtag(self, tag: str) -> None:
        self.element = ""

    def handle_data(self, data: str) -> None:
        if self.element not in ("style", "script"):
            self.found.append(data)


BUTTONS = {"submit", "button", "reset"}


def unmarked_in_template(source: str) -> list[str]:
    source = TRANSLATED.sub("", COMMENTS.sub("", source))
    texts = [" ".join(text.split()) for text in Texts(TAGS.sub("", source)).found]
    texts += [tag for tag in TAGS.findall(source) if TEXT_IN_TAGS.search(tag)]
    return [text for text in texts if LETTERS.search(text) and text not in NAMES]


TEMPLATES = [
    path for ending in ("html", "txt") for path in PACKAGE.glob(f"**/templates/**/*.{ending}")
]


def test_text_of_templates_is_marked():
    found = {path.name: unmarked_in_template(path.read_text()) for path in TEMPLATES}
    assert len(found) > 8
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "<p>Hello you</p>",
        '<img alt="A tool">',
        '<input type="submit" value="Save">',
        '<div aria-label="{{ name }} of the user"></div>',
        "<{% if a %}p{% else %}div{% endif %}>{{ name }} is here</p>",
        '{{ name|default:"nobody" }}',
    ],
)
def test_unmarked_text_of_a_template_is_found(planted):
    marked = "{% translate 'Yes' %}{% blocktranslate %}No <b>way</b>{% endblocktranslate %}"
    hidden = '<style>p { color: red }</style><input type="hidden" value="true">{# a note #}'
    assert len(unmarked_in_template(marked + planted + hidden)) == 1
    assert unmarked_in_template(marked + hidden) == []


# Python.

MODULES = [
    *sorted((PACKAGE / "admin").glob("**/*.py")),
    *sorted((PACKAGE / "models").glob("*.py")),
    PACKAGE / "declarations" / "schema_summary.py",
    PACKAGE / "web" / "clients.py",
    PACKAGE / "web" / "page.py",
    PACKAGE / "oauth" / "admin.py",
    PACKAGE / "oauth" / "models.py",
    PACKAGE / "oauth" / "connected_apps.py",
]
TWO_WORDS = re.compile(r"[^\W\d_]{2,},? [^\W\d_]")
LABELS = {
    "description", "empty_label", "empty_value_display", "help_text", "label",
    "search_help_text", "short_description", "title", "verbose_name", "verbose_name_plural",
}  # fmt: skip
SHOWING = {
    "ValidationError", "error", "info", "log_action", "message_user", "record_action", "success",
    "warning",
}  # fmt: skip
# A header, and names of programs and folders, which are the same in every language.
NOT_TRANSLATED = {
    "Claude Code", "Claude Desktop", "Library/Application Support/", "MCP Inspector", "VS Code",
    "noindex, nofollow",
    # Sent to servers and stored in their logs.
    "Inspector of ", "a person in the inspector",
    # Part of descriptions for clients. Pages leave it out.
    "Key or URI of the ", r"(?P<before>.*?)\s*Key or URI of the (?P<name>.+?)(\.|: (?P<uri>\S+))\Z",
}  # fmt: skip


class Unmarked(ast.NodeVisitor):
    """Collects texts that no gettext function marks, and marked ones that cannot be extracted."""

    def __init__(self, source: str) -> None:
        self.found: list[str] = []
        self.is_label = False
        self.visit(ast.parse(source))

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if isinstance(node.exc, ast.Call) and name_of(node.exc.func) in SHOWING:
            self.generic_visit(node)  # other errors are for developers

    def visit_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=True))
        for name, value in pairs:
            if name_of(name) != "permissions":  # Django stores their names, in English
                self.visit_as(value, name_of(name) in LABELS)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # annotations are no texts
            self.visit_as(node.value, name_of(node.target) in LABELS)

    def visit_arg(self, node: ast.arg) -> None:
        """Skip annotations."""

    def visit_keyword(self, node: ast.keyword) -> None:
        self.visit_as(node.value, node.arg in LABELS)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            self.visit_as(value, isinstance(key, ast.Constant) and key.value in LABELS)

    def visit_Call(self, node: ast.Call) -> None:
        name = name_of(node.func)
        if name in KEYWORDS:
            if not all(isinstance(one, ast.Constant | ast.Name | ast.Call) for one in node.args):
                self.found.append(ast.unparse(node))  # for example an f-string
            return
        if name_of(getattr(node.func, "value", node)) == "logger":
            return
        is_field = name.endswith("Field") and node.func is not node
        self.visit(node.func)
        for argument in node.args:
            self.visit_as(argument, name in SHOWING or is_field)
        for keyword in node.keywords:
            self.visit(keyword)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value not in NOT_TRANSLATED:
            pattern = LETTERS if self.is_label else TWO_WORDS
            text = re.sub(r"<[^>]*>", "", node.value)
            if pattern.search(text):
                self.found.append(node.value)

    def visit_as(self, node: ast.AST, is_label: bool) -> None:
        before, self.is_label = self.is_label, is_label
        self.visit(node)
        self.is_label = before


def name_of(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def test_texts_of_python_modules_are_marked():
    found = {
        path.relative_to(PACKAGE).as_posix(): Unmarked(path.read_text()).found for path in MODULES
    }
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    "planted",
    [
        'verbose_name, verbose_name_plural = "call", _("calls")',
        'name = models.CharField("name", max_length=100)',
        'name = forms.CharField(label=_("name"), help_text="Short.")',
        '@admin.action(description="Revoke")\ndef end(self): ...',
        'raise ValidationError("Wrong")',
        'self.message_user(request, f"{count} ended", messages.SUCCESS)',
        'context |= {"title": "Permissions"}',
        'CHOICES = [("a", "the first")]',
        'text = _(f"{count} are ended")',
    ],
)
def test_unmarked_text_of_python_is_found(planted):
    marked = 'name = models.CharField(_("name"), default="x")\nraise ValueError("not for people")'
    assert len(Unmarked(f'"""A docstring of words."""\n{marked}\n{planted}').found) == 1
    assert Unmarked(marked).found == []


# Models and the admin.

OURS = ("django_mcp", "django_mcp_oauth")


def unmarked_labels() -> Iterator[str]:
    for label in OURS:
        config = apps.get_app_config(label)
        yield from unlazy(label, config.verbose_name)
        for model in config.get_models():
            given = model._meta.original_attrs
            yield from unlazy(f"{model.__name__}.Meta", given.get("verbose_name"))
            yield from unlazy(f"{model.__name__}.Meta plural", given.get("verbose_name_plural"))
            for field in model._meta.fields:
                for _value, choice in field.flatchoices:
                    yield from unlazy(f"{model.__name__}.{field.name} choice", choice)


def unlazy(place: str, text: object) -> Iterable[str]:
    return () if isinstance(text, Promise) else (f"{place}: {text!r}",)


def shown_names(model_admin: admin.ModelAdmin) -> set[str]:
    filters = [one[0] if isinstance(one, tuple) else one for one in model_admin.list_filter]
    names = {*model_admin.list_display, *flatten(model_admin.fields or ())}
    return (names | {name for name in filters if isinstance(name, str)}) - {"__str__"}


def test_names_of_apps_models_and_choices_are_marked():
    assert list(unmarked_labels()) == []


def label_of(name: str, model_admin: admin.ModelAdmin) -> object:
    """Return the label of a column or field. Those of forms are tested with the modules."""
    if hasattr(model_admin, name):
        return getattr(getattr(model_admin, name), "short_description", name)
    try:
        return model_admin.opts.get_field(name).verbose_name
    except FieldDoesNotExist:
        return gettext_lazy("a field of the form")


@pytest.mark.parametrize(
    "model_admin",
    [one for one in admin.site._registry.values() if one.opts.app_label in OURS],
    ids=str,
)
def test_columns_and_fields_of_the_admin_have_marked_labels(model_admin):
    labels = {name: label_of(name, model_admin) for name in shown_names(model_admin) - {"pk"}}
    assert {name for name, label in labels.items() if not isinstance(label, Promise)} == set()
