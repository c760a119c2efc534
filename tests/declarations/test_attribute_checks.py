"""Checks of class attributes: a misspelled attribute could leave a declaration unrestricted."""

import functools

import pytest
from django.contrib.auth.mixins import (
    LoginRequiredMixin,
    PermissionRequiredMixin,
    UserPassesTestMixin,
)
from django.forms import Form
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.views import ViewTools
from django_mcp.declarations.attribute_checks import CHECKED_ELSEWHERE, checked_types
from tests.shop.models import Invoice

from .helpers import problem_ids, single_problem


def is_staff(request):
    return request.user.is_staff


def register_tool(server, *mixins, **attributes):
    """Register a tool class with ``attributes``, and return the server."""

    class Do(*mixins, mcp.Tool):
        """Do it."""

        def handle(self, request) -> str:
            return "done"

        locals().update(attributes)

    server.register(Do)
    return server


def register_rows(server, **attributes):
    class Rows(mcp.ModelResource):
        permission = "shop.view_invoice"
        fields = ["number", "total"]

        locals().update(attributes)

    server.register(Invoice, Rows)
    return server


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("permision", mcp.PUBLIC, "permission"),
        ("permission_required", "shop.view_invoice", "permission"),
        ("permission_classes", [object], "permission"),
        ("login_required", True, "permission"),
        ("readonly", True, "read_only"),
        ("permision", is_staff, "permission"),
        ("permision", staticmethod(is_staff), "permission"),
        ("permision", lambda request: True, "permission"),
        ("Permission", "shop.view_invoice", "permission"),
    ],
)
def test_unknown_attribute_of_a_tool_is_an_error(server, name, value, meant):
    message = single_problem(register_tool(server, **{name: value}))
    assert message.id == "django_mcp.E009" and name in message.msg
    assert f"Did you mean {meant!r}?" in message.hint


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("readonly_field", ["total"], "readonly_fields"),
        ("exclude", ["total"], "fields"),
        ("queryset", Invoice.objects.none(), "get_queryset"),
        ("filterset_fields", ["total"], "filter_fields"),
        ("operation_permission", {"create": "shop.add_invoice"}, "operation_permissions"),
        ("get_queryset", Invoice.objects.none(), "get_queryset"),
        ("model", Invoice, "register"),
    ],
)
def test_unknown_attribute_of_a_model_resource_is_an_error(server, name, value, meant):
    message = single_problem(register_rows(server, **{name: value}))
    assert message.id == "django_mcp.E009" and meant in message.hint


@pytest.mark.parametrize("name", ["size", "last_modified"])
def test_attribute_that_describes_one_resource_is_an_error_for_many_rows(server, name):
    message = single_problem(register_rows(server, **{name: None}))
    assert (
        message.id == "django_mcp.E009"
        and f".{name} has no effect on a model resource" in message.msg
    )


@pytest.mark.parametrize("name", ["title", "description"])
def test_attribute_that_describes_one_tool_is_an_error_for_many_views(server, name):
    server.register(type("Views", (ViewTools,), {"get": ["admin:index"], name: "x"}))
    found = [message for message in server.check() if message.id == "django_mcp.E009"]
    assert [f".{name} has no effect on a class of views" in message.msg for message in found] == [
        True
    ]


def test_unknown_attributes_of_the_other_classes_are_errors(server):
    @server.register
    class Greet(mcp.Prompt):
        permision = mcp.PUBLIC

        def handle(self, request) -> str:
            return "hello"

    @server.register
    class Policy(mcp.Resource):
        uri = "policy://returns"
        mimetype = "text/plain"

        def read(self, request) -> str:
            return "text"

    @server.register(Form)
    class Send(FormTool):
        excludes = ["secret"]

        def form_valid(self, request, form) -> str:
            return "sent"

    @server.register
    class Views(ViewTools):
        resource = ["admin:index"]
        get = ["admin:index"]

    found = [message for message in server.check() if message.id == "django_mcp.E009"]
    hints = {message.msg.split()[0]: message.hint for message in found}
    assert [*hints] == [
        f"{cls.__qualname__}.{name}"
        for cls, name in [
            (Greet, "permision"),
            (Policy, "mimetype"),
            (Send, "excludes"),
            (Views, "resource"),
        ]  # fmt: skip
    ]
    assert "'mime_type'" in hints[f"{Policy.__qualname__}.mimetype"]


def test_attribute_that_only_the_package_may_set_is_an_error(server):
    assert problem_ids(register_tool(server, scopes=["shop.view_invoice"])) == ["E009"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("get_query_set", "get_queryset"),
        ("has_perm", "has_permission"),
        ("has_object_permissions", "has_object_permission"),
        ("save_models", "save_model"),
        ("delete_object", "delete_model"),
        ("has_change_permission", "has_operation_permission"),
        ("has_view_permission", "has_permission"),
        ("get_permissions", "has_permission"),
        ("check_permissions", "has_permission"),
        ("check_object_permissions", "has_object_permission"),
        ("test_func", "has_permission"),
        ("get_readonly_fields", "readonly_fields"),
        ("get_fields", "fields"),
    ],
)
def test_method_with_a_misspelled_hook_name_is_an_error(server, name, meant):
    def method(self, request):
        return True

    method.__name__ = name
    message = single_problem(register_rows(server, **{name: method}))
    assert message.id == "django_mcp.E009" and f"{meant!r}" in message.hint


RESTRICTION_NAMES = [
    "permision", "permissions", "permission_required", "get_permission_required",
    "permission_classes", "check_permission", "check_permissions", "check_perms", "login_required",
    "exclude", "is_allowed", "is_authorized", "allow", "can_access", "readonly_field",
    "read_only_fields", "has_perm", "has_module_permission",
]  # fmt: skip


@pytest.mark.parametrize("name", RESTRICTION_NAMES)
@pytest.mark.parametrize("base", [mcp.Tool, mcp.Resource, mcp.Prompt, mcp.ModelResource])
@pytest.mark.parametrize("wrap", [lambda function: function, property])
def test_method_or_property_that_looks_like_a_restriction_is_an_error(server, base, name, wrap):
    def method(self, request=None):
        return False

    def handle(self, request) -> str:
        return "done"

    method.__name__ = name
    is_rows = base is mcp.ModelResource
    own = required_attributes(base, handle)
    made = type("Restricted", (base,), own | {"__doc__": "Do.", name: wrap(method)})
    found = [
        e for e in check_with(server, made, *([Invoice] if is_rows else [])) if e.id[-3:] == "009"
    ]
    assert [message.msg.split()[0] for message in found] == [f"Restricted.{name}"]
    assert "underscore" in found[0].hint
    if name == "permision":
        assert "Did you mean 'permission'?" in found[0].hint
    if name in ("is_allowed", "check_permission", "check_perms"):
        assert "Did you mean 'has_permission'?" in found[0].hint


def required_attributes(base, method):
    """Return the attributes that a subclass of ``base`` must have."""
    if base is mcp.ModelResource:
        return {"fields": ["number"]}
    return {"uri": "a://b", "read": method} if base is mcp.Resource else {"handle": method}


def check_with(server, cls, *models):
    server.register(*models, cls)
    return server.check()


@pytest.mark.parametrize(
    "name",
    [
        "total_label", "customer_name", "names", "labels", "lines", "titles", "full_title",
        "read_rows", "handle_line", "default_currency", "ordered", "written", "send_mail", "total",
        "as_text", "is_late", "is_paid", "url", "icon_of", "parse", "describe", "scoped", "updated",
        "get_price", "get_user", "get_total", "get_instance", "has_tax", "form_lines",
    ],
)  # fmt: skip
@pytest.mark.parametrize("base", [mcp.Tool, mcp.Resource, mcp.Prompt, mcp.ModelResource])
def test_helper_method_with_an_ordinary_name_is_valid(server, base, name):
    def handle(self, request) -> str:
        return "done"

    def method(self, *args):
        return ""

    method.__name__ = name
    is_rows = base is mcp.ModelResource
    own = required_attributes(base, handle)
    for each in (method, property(method)):
        made = type("Helped", (base,), own | {"__doc__": "Do.", name: each})
        assert check_with(server, made, *([Invoice] if is_rows else [])) == []
        server._records.clear()
        server._forget()


@pytest.mark.parametrize(
    ("base", "name", "entry", "number"),
    [
        (mcp.Tool, "hanlde", "handle", "E020"),
        (mcp.Tool, "run", "handle", "E020"),
        (mcp.Prompt, "handel", "handle", "E030"),
        (mcp.Resource, "raed", "read", "E043"),
    ],
)
def test_missing_method_is_an_error_that_suggests_the_misspelled_one(
    server, base, name, entry, number
):
    def method(self, request) -> str:
        return "done"

    method.__name__ = name
    uri = {"uri": "a://b"} if base is mcp.Resource else {}
    made = type("Do", (base,), uri | {"__doc__": "Do.", name: method})
    (message,) = check_with(server, made)
    assert message.id == f"django_mcp.{number}" and f"no method {entry!r}" in message.msg
    assert (f"Did you mean {entry!r} by {name!r}?" in message.msg) is (name != "run")


# Types of values.


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("read_only", "no", "True, False or None"),
        ("destructive", 1, "True, False or None"),
        ("idempotent", "yes", "True, False or None"),
        ("open_world", "no", "True, False or None"),
        ("atomic", None, "True, False or a string"),
        ("name", 5, "a string"),
        ("title", 5, "a string"),
        ("description", ["x"], "a string"),
        ("scope", ["x"], "a string"),
        ("needs", "sampling", "a list of names"),
        ("needs", [5], "a list of names"),
        ("icons", mcp.Icon("data:,"), "a list of mcp.Icon"),
        ("meta", ["x"], "a dict"),
    ],
)
@pytest.mark.parametrize("decorated", [False, True])
def test_value_of_the_wrong_type_is_an_error(server, name, value, words, decorated):
    if decorated:
        server.tool(**{"name": "do"} | {name: value})(lambda request: "x")
    else:
        register_tool(server, **{name: value})
    message = single_problem(server)
    assert message.id == "django_mcp.E060" and f"{name} is {value!r}" in message.msg
    assert words in message.hint


@pytest.mark.parametrize(
    ("name", "value", "number", "words"),
    [
        ("listed", "yes", "E060", "True or False"),
        ("listed", None, "E060", "True or False"),
        ("default", "no", "E060", "True or False"),
        ("shared", "no", "E060", "True or False"),
        ("fields", "number", "E060", "list of names"),
        ("fields", 5, "E060", "list of names"),
        ("search_fields", "number", "E060", "list of names"),
        ("ordering", {"number": 1}, "E060", "list of names"),
        ("operations", "update", "E060", "list"),
        ("readonly_fields", "total", "E060", "list"),
        ("operation_permissions", ["update"], "E060", "a dict"),
        ("mime_type", 5, "E060", "a string"),
    ],
)
def test_value_of_the_wrong_type_of_a_model_resource_is_an_error(
    server, name, value, number, words
):
    message = single_problem(register_rows(server, **{name: value}))
    assert message.id == f"django_mcp.{number}" and f"{name} is {value!r}" in message.msg
    assert words in message.hint


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("size", "big", "a whole number"), ("last_modified", "today", "a datetime")],
)
def test_value_of_the_wrong_type_of_a_resource_is_an_error(server, name, value, words):
    server.resource("policy://returns", **{name: value})(lambda request: "text")
    message = single_problem(server)
    assert message.id == "django_mcp.E060" and f"{name} is {value!r}" in message.msg
    assert words in message.hint


def test_check_reports_all_wrong_values_and_unknown_attributes(server):
    register_tool(server, read_only="no", atomic=5, permision=mcp.PUBLIC)
    assert sorted(problem_ids(server)) == ["E009", "E060", "E060"]


def test_value_of_the_wrong_type_of_form_and_view_tools_is_an_error(server):
    @server.register(Form)
    class Send(FormTool):
        update = "no"
        exclude = "secret"

        def form_valid(self, request, form) -> str:
            return "sent"

    @server.register
    class Views(ViewTools):
        get = ["admin:index"]
        forms = ["admin:index"]
        names = "index"

    assert sorted(problem_ids(server)) == ["E060"] * 4


@pytest.mark.parametrize("value", [True, None, False])
def test_value_of_the_right_type_is_valid(server, value):
    assert (
        problem_ids(
            register_tool(server, read_only=value, title=gettext_lazy("x"), needs=("roots",))
        )
        == []
    )


def test_every_option_has_a_type_check_or_its_own_check():
    classes = [mcp.Tool, mcp.Resource, mcp.Prompt, mcp.ModelResource, FormTool, ViewTools]
    options = {cls: cls._options() for cls in classes}
    unchecked = {
        name for cls, names in options.items() for name in names - {*checked_types(cls, names)}
    }
    own = {"permission", "audience", "form_class"}
    assert unchecked == own | CHECKED_ELSEWHERE


def test_class_may_have_its_own_private_names_methods_and_properties(server):
    @server.register(Invoice)
    class Rows(mcp.ModelResource):
        permission = "shop.view_invoice"
        fields = ["number", "get_totals"]
        _company = "member"

        class Totals:
            pass

        def total_label(self, row, request) -> str:
            return str(row.total)

        def get_totals(self, row, request) -> str:
            return str(row.total)

        @property
        def label(self):
            return "x"

        @functools.cached_property
        def names(self):
            return []

        def test_label(self):
            return []

        @staticmethod
        def plain():
            return []

        @classmethod
        def made(cls):
            return cls()

        @functools.lru_cache  # noqa: B019
        def cached(self):
            return []

    assert "E009" not in problem_ids(server)


PRIVATE_NAMES = [
    "_decide", "_definition", "_error", "_kind", "_instances_for", "_origin", "_resolve",
    "_arguments",  # set on instances, and only annotated in the class
]  # fmt: skip


@pytest.mark.parametrize("in_mixin", [False, True])
@pytest.mark.parametrize("value", [5, lambda self: "x", property(lambda self: "x")])
@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_replacing_a_private_attribute_is_an_error(server, name, value, in_mixin):
    mixins = [type("Mixin", (), {name: value})] if in_mixin else []
    message = single_problem(register_tool(server, *mixins, **({} if in_mixin else {name: value})))
    owner = "Mixin" if in_mixin else message.obj.__qualname__
    assert message.id == "django_mcp.E065" and f"{owner}.{name} replaces" in message.msg
    assert "another name" in message.hint and str(message)


def test_mixin_after_the_base_class_must_not_have_its_private_attributes(server):
    """Otherwise the methods of the mixin would read the attribute of the base class."""

    class Paged:
        _page = 3

    @server.register(Invoice)
    class Rows(mcp.ModelResource, Paged):
        permission = "shop.view_invoice"
        fields = ["number"]

    assert "Paged._page" in single_problem(server).msg


@pytest.mark.parametrize("declare", [register_rows, register_tool])
@pytest.mark.parametrize("name", ["page", "gate", "required", "transaction", "function", "kind"])
def test_method_may_have_any_undocumented_name(server, declare, name):
    def own(self):
        return "x"

    own.__name__ = name
    assert "E009" not in problem_ids(declare(server, **{name: own}))
    assert server._catalog.tools or server._catalog.models


def test_unknown_attribute_of_a_base_class_is_an_error_in_a_subclass(server):
    class Base(mcp.Tool):
        permision = "shop.view_invoice"

        def handle(self, request) -> str:
            return "done"

    server.register(type("One", (Base,), {"__doc__": "One."}))
    assert "Base.permision" in single_problem(server).msg


def test_mixin_may_have_its_own_attributes_which_a_subclass_may_set(server):
    class Monthly:
        month = 1
        logger = None

    assert problem_ids(register_tool(server, Monthly, month=2)) == []


@pytest.mark.parametrize("value", [1, is_staff, property(is_staff)])
@pytest.mark.parametrize(
    ("name", "meant"),
    [("permision", "permission"), ("permissions", "permission"), ("test_func", "has_permission")],
)
def test_mixin_with_a_misspelled_option_is_an_error(server, name, value, meant):
    message = single_problem(register_tool(server, type("Restricted", (), {name: value})))
    assert f"Restricted.{name}" in message.msg and f"Did you mean {meant!r}?" in message.hint


@pytest.mark.parametrize(
    "mixin", [PermissionRequiredMixin, UserPassesTestMixin, LoginRequiredMixin]
)
def test_permission_mixin_of_django_is_an_error(server, mixin):
    message = single_problem(register_tool(server, mixin, permission=mcp.PUBLIC))
    assert message.id == "django_mcp.E009" and mixin.__name__ in message.msg
    assert "'permission'" in message.hint


def test_mixin_after_the_base_class_that_overrides_options_is_an_error(server):
    """Its permission and rows would be ignored, because the base class comes first."""

    class Own:
        permission = "shop.change_invoice"

        def get_queryset(self, request):
            return Invoice.objects.none()

    class Rows(mcp.ModelResource, Own):
        fields = ["number"]

    class Right(Own, mcp.ModelResource):
        fields = ["total"]

    class Written(mcp.ModelResource, Own):
        permission = "shop.view_invoice"
        fields = ["total"]
        get_queryset = Own.get_queryset
        uri = "written://{pk}"
        name = "written"

    server.register(Invoice, Written)

    server.register(Invoice, Rows)
    server.register(Invoice, type("Other", (Right,), {"name": "other", "uri": "other://{pk}"}))
    found = {message.msg.split(".")[-2]: message.hint for message in server.check()}
    hint = "Name Own before ModelResource among the base classes."
    assert found == {
        "permission has no effect on a model resource": hint,
        "get_queryset has no effect on a model resource": hint,
    }


def test_unknown_option_of_a_decorator_is_an_error_with_a_suggestion(server):
    server.tool(permision=mcp.PUBLIC)(lambda request: "x")
    (message,) = server.check()
    assert message.id == "django_mcp.E003" and "Did you mean 'permission'?" in message.msg


@pytest.mark.parametrize(("name", "meant"), [("titel", "title"), ("intructions", "instructions")])
def test_unknown_attribute_of_a_server_raises(server, name, meant):
    with pytest.raises(AttributeError, match=f"Did you mean '{meant}'"):
        setattr(server, name, "The shop")
    setattr(server, meant, "The shop")
    assert getattr(server, meant) == "The shop"
