"""Schemas of questions, which are flat objects, and the validation of answers."""

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from django import forms
from django.db import models
from pydantic import BaseModel, Field, field_validator

from django_mcp.declarations.elicitation_forms import form_for
from django_mcp.declarations.schemas import problem
from django_mcp.exceptions import WrongAnswer
from tests.oracle import message_conforms
from tests.shop.models import Company, Customer, Invoice


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Level(models.IntegerChoices):
    LOW = 1, "Rather low"
    HIGH = 2


class Number(enum.Enum):
    ONE = 1


STATUS = [
    {"const": "draft", "title": "Draft"},
    {"const": "open", "title": "Awaiting payment"},
    {"const": "paid", "title": "Paid"},
]


class Person(BaseModel):
    """A person."""

    name: Annotated[str, Field(min_length=1, max_length=20, title="Full name")]
    age: Annotated[int, Field(ge=0, le=150, description="In years.")] = 30
    height: float | None = None
    member: bool = False
    born: date | None = None
    seen: datetime | None = None
    size: Size = Size.SMALL
    status: Invoice.Status = Invoice.Status.OPEN
    wanted: list[Invoice.Status] = []
    tone: Literal["kind", "firm"] | None = None
    only: Literal["this"] = "this"

    @field_validator("name")
    @classmethod
    def _no_nonsense(cls, value: str) -> str:
        if value == "nonsense":
            raise ValueError("This is nonsense.")
        return value


@dataclass
class Point:
    x: float
    y: float = 0.0
    label: str = field(default="here")


def schema_for(schema) -> dict[str, Any]:
    """Return the schema that is sent to the client."""
    return form_for(schema).schema


def read_answer(schema, value) -> Any:
    return form_for(schema).read({"answer": value})


def refusal_message(schema, content) -> str:
    with pytest.raises(WrongAnswer) as refused:
        form_for(schema).read(content)
    return str(refused.value)


# Single values.


@pytest.mark.parametrize(
    ("schema", "prop"),
    [
        (bool, {"type": "boolean"}),
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Size, {"type": "string", "enum": ["s", "l"]}),
        (Invoice.Status, {"type": "string", "oneOf": STATUS}),
        (
            Level,
            {"type": "string", "oneOf": [
                {"const": "1", "title": "Rather low"}, {"const": "2", "title": "High"}]},
        ),
        (list[Literal["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        (list[Size], {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}}),
        (list[Invoice.Status], {"type": "array", "items": {"anyOf": STATUS}}),
    ],
)  # fmt: skip
def test_schema_of_a_single_value(schema, prop):
    assert schema_for(schema) == {
        "type": "object", "properties": {"answer": prop}, "required": ["answer"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "given", "value"),
    [
        (bool, False, False),
        (str, "", ""),
        (int, 5, 5),
        (float, 5, 5.0),
        (Literal["a", "b"], "b", "b"),
        (Size, "l", Size.LARGE),
        (Invoice.Status, "open", Invoice.Status.OPEN),
        (Level, "2", Level.HIGH),
        (list[Size], ["l", "s"], [Size.LARGE, Size.SMALL]),
        (list[Invoice.Status], ["open"], [Invoice.Status.OPEN]),
        (list[Level], ["1"], [Level.LOW]),
        (list[Literal["a"]], [], []),
    ],
)
def test_answer_of_a_single_value(schema, given, value):
    found = read_answer(schema, given)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (bool, "yes"), (bool, 1), (bool, "true"),
        (str, 5), (str, ["a"]),
        (int, "5"), (int, 5.5), (int, True),
        (float, "5"), (float, False),
        (Literal["a"], "b"), (Size, "SMALL"), (Invoice.Status, "Paid"), (Level, 2),
        (list[Size], "s"), (list[Size], ["s", "m"]), (list[Size], [["s"]]),
        (int, None), (str, {"a": 1}),
    ],
)  # fmt: skip
def test_answer_of_another_type_is_refused(schema, given):
    assert refusal_message(schema, {"answer": given})


def test_missing_answer_is_refused():
    assert refusal_message(bool, {}) == "'answer' is a required property"
    assert refusal_message(bool, {"other": True}) == "'answer' is a required property"


@pytest.mark.parametrize(
    "schema",
    [
        dict, list, list[int], list[str], tuple[int, ...], int | str, int | None, Decimal, date,
        object, None, 5, "bool", Literal["a", 1], Number, list[Number], dict[str, int], Any,
        Annotated[int, Field(gt=0)], list[Person], Customer,
    ],
)  # fmt: skip
def test_unsupported_type_of_a_question_is_refused(schema):
    with pytest.raises(TypeError):
        form_for(schema)


# Models and dataclasses.


def test_schema_of_a_pydantic_model():
    schema = schema_for(Person)
    assert schema["required"] == ["name"] and "$defs" not in schema
    assert schema["properties"] == {
        "name": {"type": "string", "title": "Full name", "minLength": 1, "maxLength": 20},
        "age": {
            "type": "integer", "title": "Age", "description": "In years.", "default": 30,
            "minimum": 0, "maximum": 150,
        },
        "height": {"type": "number", "title": "Height"},
        "member": {"type": "boolean", "title": "Member", "default": False},
        "born": {"type": "string", "title": "Born", "format": "date"},
        "seen": {"type": "string", "title": "Seen", "format": "date-time"},
        "size": {"type": "string", "enum": ["s", "l"], "default": "s"},
        "status": {"type": "string", "oneOf": STATUS, "default": "open"},
        "wanted": {"type": "array", "title": "Wanted", "items": {"anyOf": STATUS}, "default": []},
        "tone": {"type": "string", "title": "Tone", "enum": ["kind", "firm"]},
        "only": {"type": "string", "title": "Only", "enum": ["this"], "default": "this"},
    }  # fmt: skip


def test_answer_is_an_instance_of_the_model():
    given = {
        "name": "Ann", "age": 40, "height": 1.7, "member": True, "born": "2001-02-03",
        "seen": "2026-01-02T03:04:05Z", "size": "l", "status": "paid", "wanted": ["open"],
        "tone": "firm",
    }  # fmt: skip
    assert form_for(Person).read(given) == Person(
        name="Ann", age=40, height=1.7, member=True, born=date(2001, 2, 3),
        seen=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), size=Size.LARGE,
        status=Invoice.Status.PAID, wanted=[Invoice.Status.OPEN], tone="firm",
    )  # fmt: skip


def test_null_in_an_answer_uses_the_default():
    assert form_for(Person).read({"name": "A", "height": None, "age": None}) == Person(name="A")


def test_datetime_of_an_answer_is_in_the_current_time_zone(settings):
    settings.TIME_ZONE = "Europe/Paris"
    answer = form_for(Person).read({"name": "A", "seen": "2026-01-02T03:00:00"})
    assert answer.seen == datetime(2026, 1, 2, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "'name' is a required property"),
        ({"name": ""}, "name: '' should be non-empty"),
        ({"name": "A", "age": -1}, "age: -1 is less than the minimum of 0"),
        ({"name": "A", "age": "40"}, "age: '40' is not of type 'integer'"),
        ({"name": "A", "born": "yesterday"}, "born: 'yesterday' is not a 'date'"),
        ({"name": "A", "status": "lost"}, "status: 'lost' should be: one of "),
        ({"name": "A", "wanted": ["lost"]}, "wanted.0: 'lost' should be: one of "),
        ({"name": "nonsense"}, "This is nonsense."),
    ],
)
def test_answer_that_does_not_fit_the_model_is_refused(content, words):
    assert words in refusal_message(Person, content)


def test_schema_and_answer_of_a_dataclass():
    assert schema_for(Point)["required"] == ["x"]
    assert schema_for(Point)["properties"]["y"] == {"type": "number", "title": "Y", "default": 0.0}
    assert form_for(Point).read({"x": 1, "label": "there"}) == Point(1.0, label="there")
    assert "x" in refusal_message(Point, {"x": "1"})


class Nested(BaseModel):
    person: Person


class Lists(BaseModel):
    names: list[str]


class Objects(BaseModel):
    names: dict[str, str]


class Several(BaseModel):
    value: int | str


class Exact(BaseModel):
    amount: Decimal


@dataclass
class Holder:
    point: Point


class Many(BaseModel):
    points: list[Point]


class Numbers(BaseModel):
    number: Literal[1, 2]


@pytest.mark.parametrize("schema", [Nested, Lists, Objects, Several, Exact, Holder, Many, Numbers])
def test_nested_type_is_refused(schema):
    with pytest.raises(TypeError):
        form_for(schema)


def test_list_of_choices_may_have_length_limits():
    class Bounded(BaseModel):
        wanted: Annotated[list[Invoice.Status], Field(min_length=1, max_length=2)]
        sizes: set[Size]
        words: set[Literal["a"]] = set()

    properties = schema_for(Bounded)["properties"]
    assert (properties["wanted"]["minItems"], properties["wanted"]["maxItems"]) == (1, 2)
    assert properties["sizes"]["items"]["enum"] == ["s", "l"]
    assert properties["words"]["items"]["enum"] == ["a"]
    given = {"wanted": ["open"], "sizes": ["s", "s"], "words": ["a"]}
    assert form_for(Bounded).read(given).sizes == {Size.SMALL}
    assert refusal_message(Bounded, given | {"wanted": []})


def test_format_that_the_specification_lacks_is_omitted():
    class Ids(BaseModel):
        id: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
        mail: Annotated[str, Field(json_schema_extra={"format": "email"})]

    properties = schema_for(Ids)["properties"]
    assert "format" not in properties["id"] and properties["mail"]["format"] == "email"


def test_constraint_that_the_form_cannot_express_is_still_validated():
    class Odd(BaseModel):
        number: Annotated[int, Field(gt=0, multiple_of=2)]
        code: Annotated[str, Field(pattern="^[A-Z]+$")]

    assert schema_for(Odd)["properties"]["number"] == {"type": "integer", "title": "Number"}
    assert form_for(Odd).read({"number": 2, "code": "A"}) == Odd(number=2, code="A")
    assert "greater than 0" in refusal_message(Odd, {"number": 0, "code": "A"})
    assert "pattern" in refusal_message(Odd, {"number": 2, "code": "a"})


def test_form_of_a_type_is_cached():
    assert form_for(Person) is form_for(Person) and form_for(list[Size]) is form_for(list[Size])


# Handwritten schemas.

LEGACY = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "count": {"type": "integer", "minimum": 1},
        "several": {"type": "array", "items": {"type": "string", "enum": ["a"]}, "maxItems": 1},
    },
    "required": ["colour"],
}


def test_handwritten_schema_is_sent_verbatim():
    assert schema_for(LEGACY) == LEGACY
    assert form_for(LEGACY).read({"colour": "r", "count": 2}) == {"colour": "r", "count": 2}
    assert refusal_message(LEGACY, {"colour": "Red"}).startswith("colour: 'Red' is not one of")
    assert refusal_message(LEGACY, {"colour": "r", "count": 0})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "object"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"a": True}},
    ],
)
def test_handwritten_schema_that_is_not_flat_is_refused(schema):
    with pytest.raises(TypeError):
        form_for(schema)


# Django forms.


class Payment(forms.Form):
    amount = forms.DecimalField(min_value=Decimal("0.01"), decimal_places=2)
    on = forms.DateField(required=False)
    express = forms.BooleanField(required=False)
    status = forms.ChoiceField(choices=Invoice.Status.choices, required=False)
    tags = forms.MultipleChoiceField(choices=[("a", "A"), ("b", "B")], required=False)
    note = forms.CharField(required=False)

    def clean_note(self):
        return self.cleaned_data["note"].upper()

    def clean(self):
        if self.cleaned_data.get("amount") == 13:
            raise forms.ValidationError("Not on a Friday.")
        return super().clean()


def test_django_form_cleans_the_answer():
    content = {"amount": 12.5, "on": "2026-01-02", "express": True, "tags": ["b"], "note": "hi"}
    assert form_for(Payment).read(content) == {
        "amount": Decimal("12.5"), "on": date(2026, 1, 2), "express": True, "status": "",
        "tags": ["b"], "note": "HI",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "'amount' is a required property"),
        ({"amount": 0}, "amount: 0 is less than the minimum of 0.01"),
        ({"amount": "12.50"}, "amount: '12.50' is not of type 'number'"),
        ({"amount": 1.234}, "Amount: Ensure that there are no more than 2 decimal places."),
        ({"amount": 13}, "Not on a Friday."),
        ({"amount": 1, "note": {"a": 1}}, "note: {'a': 1} is not of type 'string'"),
        ({"amount": 1, "tags": ["c"]}, "tags.0: 'c' should be: one of a, b"),
        ({"amount": 1, "status": "lost"}, "status: 'lost' should be: one of "),
    ],
)
def test_django_form_refuses_an_invalid_answer(content, words):
    assert words in refusal_message(Payment, content)


def test_prefix_of_a_form_is_ignored():
    class Prefixed(forms.Form):
        prefix = "pay"
        name = forms.CharField()

    assert list(schema_for(Prefixed)["properties"]) == ["name"]
    assert form_for(Prefixed).read({"name": "A"}) == {"name": "A"}


def test_form_class_with_required_arguments_is_refused():
    class Needy(forms.Form):
        def __init__(self, user, *args, **kwargs):
            super().__init__(*args, **kwargs)

    with pytest.raises(TypeError, match="user"):
        form_for(Needy)


def test_model_form_validates_uniqueness(db):
    class CompanyForm(forms.ModelForm):
        class Meta:
            model = Company
            fields = ["name"]

    assert schema_for(CompanyForm)["properties"]["name"]["maxLength"] == 100
    assert form_for(CompanyForm).read({"name": "New"}) == {"name": "New"}
    Company.objects.create(name="Taken")
    assert "already exists" in refusal_message(CompanyForm, {"name": "Taken"})


class Pick(forms.Form):
    customer = forms.ModelChoiceField(Customer.objects.all())


@pytest.mark.parametrize("kind", ["sync", "async", "several"])
def test_rows_can_be_chosen_from_sync_and_async_tools(
    server, connect, alice, invoice, kind, revision
):
    """The choices are queried in a thread where queries are allowed."""
    import django_mcp as mcp

    if kind == "sync":

        @server.tool
        def pick(request) -> str:
            return request.elicit("Whom?", Pick)["customer"].name

    elif kind == "async":

        @server.tool
        async def pick(request) -> str:
            return (await request.aelicit("Whom?", Pick))["customer"].name

    else:

        @server.tool
        async def pick(request) -> str:
            found = await request.aask(whom=mcp.Elicit("Whom?", Pick), sure=mcp.Elicit("Sure?"))
            return found["whom"]["customer"].name

    given = {"customer": str(invoice.customer_id), "answer": True}
    answers = {"elicitation/create": lambda params: {"action": "accept", "content": {
        name: given[name] for name in params["requestedSchema"]["properties"]}}}  # fmt: skip
    client = connect(alice, server=server, revision=revision, answers=answers)
    if revision in ("2024-11-05", "2025-03-26"):
        assert "elicitation" in client.failure("pick")
    else:
        assert client.text("pick") == "Carla"


def accept(params, **content):
    return {"action": "accept", "content": content}


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_choices_contain_only_rows_that_the_user_may_see(
    server, connect, alice, bob, invoice, revision
):
    """This also applies if the queryset of the form contains all rows."""
    import django_mcp as mcp

    acme, bolts = Company.objects.get(name="Acme"), Company.objects.get(name="Bolts")
    hidden = Customer.objects.create(company=bolts, name="Hidden")
    Customer.objects.create(company=acme, name="Forbidden")

    @server.register(Customer)
    class CustomerResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

        def has_object_permission(self, request, obj, operation):
            return obj.name != "Forbidden"

    @server.tool
    def pick(request) -> str:
        return request.elicit("Whom?", Pick)["customer"].name

    given = iter([str(hidden.pk), str(invoice.customer_id)])
    answers = {"elicitation/create": lambda params: accept(params, customer=next(given))}
    client = connect(alice, server=server, revision=revision, answers=answers)
    assert client.text("pick") == "Carla"
    first, second = (one["params"] for one in client.asked)
    assert "Carla" in str(first) and "should be: " in second["message"]
    assert "Hidden" not in str(client.received) and "Forbidden" not in str(client.received)


@pytest.mark.parametrize("required", [True, False])
def test_optional_field_without_rows_is_omitted_and_required_one_fails(
    server, connect, bob, invoice, required
):
    import django_mcp as mcp

    @server.register(Customer)
    class CustomerResource(mcp.ModelResource):
        fields = ["name"]
        permission = mcp.AUTHENTICATED

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    class Perhaps(forms.Form):
        customer = forms.ModelChoiceField(Customer.objects.all(), required=required)
        note = forms.CharField()

    @server.tool
    def pick(request) -> str:
        return str(request.elicit("Whom?", Perhaps)["customer"])

    answers = {"elicitation/create": lambda params: accept(params, note="x")}
    client = connect(bob, server=server, answers=answers)
    if required:
        assert client.failure("pick") == "customer: there are no choices."
    else:
        assert client.text("pick") == "None"
        assert list(client.asked[0]["params"]["requestedSchema"]["properties"]) == ["note"]


def test_number_of_rows_to_choose_from_is_limited(alice, invoice):
    rows = [Customer(company=invoice.company, name=f"{n:04}") for n in range(200)]
    Customer.objects.bulk_create(rows)
    with pytest.raises(TypeError, match="customer: there are more than 200 rows"):
        form_for(Pick)
    Customer.objects.filter(name="0000").delete()
    assert len(schema_for(Pick)["properties"]["customer"]["oneOf"]) == 200


class Needy(forms.Form):
    greeting = forms.CharField(initial="Hello")
    whom = forms.ChoiceField()

    def __init__(self, names, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["whom"].choices = [(name, name.title()) for name in names]

    def clean(self):
        self.cleaned_data["names"] = len(self.fields["whom"].choices)


def test_form_instance_with_arguments_and_initial_values():
    form = form_for(Needy(["ann", "bob"], initial={"greeting": "Hi"}))
    properties = form.schema["properties"]
    assert properties["greeting"]["default"] == "Hi"
    assert [one["title"] for one in properties["whom"]["oneOf"]] == ["Ann", "Bob"]
    for _ in range(2):  # an invalid answer does not affect the next
        with pytest.raises(WrongAnswer):
            form.read({"whom": "ann"})
        given = {"greeting": "Hi", "whom": "ann"}
        assert form.read(given) == given | {"names": 2}


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_form_of_a_row_has_its_values_as_defaults_and_is_asked_again(
    server, connect, alice, invoice, revision
):
    class Edit(forms.ModelForm):
        class Meta:
            model = Invoice
            fields = ["number", "total"]
            labels = {"total": "How much?"}

    @server.tool
    def edit(request) -> str:
        row = Invoice.objects.get()
        found = request.elicit("Change it?", Edit(instance=row))
        assert row.total == Decimal("12.50"), "the tool's own row is left alone"
        return str(found["total"])

    given = iter([{"number": "A-1", "total": 1.234}, {"number": "A-1", "total": 1}])
    answers = {"elicitation/create": lambda params: accept(params, **next(given))}
    client = connect(alice, server=server, revision=revision, answers=answers)
    assert client.text("edit") == "1"
    first, second = (one["params"] for one in client.asked)
    if revision != "2025-06-18":  # this revision has no defaults of numbers
        assert first["requestedSchema"]["properties"]["total"]["default"] == 12.5
    assert second["message"] == (
        "Change it?\n\nHow much?: Ensure that there are no more than 2 decimal places."
    )


class Dates(forms.Form):
    day = forms.DateField(input_formats=["%d.%m.%Y"], widget=forms.SelectDateWidget)
    moment = forms.SplitDateTimeField()
    price = forms.DecimalField(localize=True)


def test_dates_and_numbers_are_read_as_json_in_any_locale():
    from django.utils import translation

    given = {"day": "2026-01-02", "moment": "2026-01-02T03:04:05Z", "price": 1.234}
    with translation.override("de"):
        assert form_for(Dates).read(given) == {
            "day": date(2026, 1, 2), "moment": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "price": Decimal("1.234"),
        }  # fmt: skip


# The specification.


@pytest.mark.parametrize(
    "schema",
    [
        bool,
        str,
        Size,
        list[Size],
        Invoice.Status,
        list[Level],
        Person,
        Point,
        LEGACY,
        Payment,
        Dates,
    ],
)
def test_schemas_conform_to_the_specification(schema):
    from django_mcp.protocol.revisions import REVISIONS, encode_request

    shown = schema_for(schema)
    assert problem(shown) is None
    for revision in REVISIONS.values():
        params = {"mode": "form", "message": "?", "requestedSchema": shown}
        message = encode_request(revision, "1", "elicitation/create", params)
        if message is not None:
            message_conforms(revision, message)
