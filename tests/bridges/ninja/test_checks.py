"""System checks of ninja operations: each has an id and a hint."""

from __future__ import annotations

from types import ModuleType

import pytest
from django.urls import path, re_path
from ninja import Body, Cookie, Header, NinjaAPI, Query, Router, Schema
from ninja.renderers import BaseRenderer
from ninja.security import APIKeyCookie, APIKeyQuery, HttpBasicAuth, django_auth

from django_mcp.bridges.ninja import NinjaTools
from tests.declarations.helpers import problem_ids, single_problem, valid_catalog
from tests.shop.models import Invoice

from . import api

pytestmark = pytest.mark.urls("tests.bridges.ninja.api")


@pytest.fixture
def mounted(settings):
    """Return a function that mounts APIs."""

    def made(*apis, route="api{}/"):
        module = ModuleType("urls_of_test")
        patterns = [path(route.format(number), one.urls) for number, one in enumerate(apis)]
        module.urlpatterns = patterns  # type: ignore[attr-defined]
        settings.ROOT_URLCONF = module

    return made


@pytest.fixture
def problem(mounted, expose):
    """Return a function that exposes one function as an operation, and returns the only message."""

    def found(
        function, *, method="post", where="/thing", response=str, api_options=None, **options
    ):
        attributes = {name: options.pop(name) for name in ("replace_auth",) if name in options}
        made = NinjaAPI(urls_namespace="made", **(api_options or {}))
        getattr(made, method)(where, response=response, **options)(function)
        mounted(made)
        return single_problem(expose(function.__name__, subject=made, **attributes))

    return found


def number(message):
    assert message.hint
    return message.id.removeprefix("django_mcp.")


# The class.


@pytest.mark.parametrize("subject", [Invoice, "api", api.get_invoice])
def test_wrong_subject_is_an_error(expose, subject):
    message = single_problem(expose("list_invoices", subject=subject))
    assert number(message) == "E200" and "@mcp.register(api)" in message.hint


def test_class_without_an_api_is_an_error(server):
    server.register(type("Exposed", (NinjaTools,), {"operations": ["list_invoices"]}))
    assert number(single_problem(server)) == "E200"


def test_list_is_required(expose):
    assert number(single_problem(expose())) == "E201"


def test_list_must_not_be_a_text(server):
    server.register(api.api, type("Exposed", (NinjaTools,), {"operations": "list_invoices"}))
    assert problem_ids(server) == ["E060"]


@pytest.mark.parametrize(
    ("name", "hint"), [("get_invoise", "Did you mean 'get_invoice'?"), ("x" * 9, "There are ")]
)
def test_unknown_operation_is_an_error(expose, name, hint):
    message = single_problem(expose(name))
    assert number(message) == "E202" and hint in message.hint


@pytest.mark.parametrize("attribute", ["names", "descriptions"])
def test_key_that_is_not_listed_is_an_error(expose, attribute):
    message = single_problem(expose("either", **{attribute: {"row": "x"}}))
    assert number(message) == "E202" and attribute in message.msg


def test_ambiguous_name_is_an_error(expose):
    message = single_problem(expose("list_all"))
    assert number(message) == "E203"
    assert "list_of_customers, list_of_notes" in message.hint


def test_router_of_two_apis_is_ambiguous(mounted, expose):
    router, apis = Router(), [NinjaAPI(urls_namespace=name) for name in "ab"]
    router.get("/thing", response=str)(lambda_of_test)
    for one in apis:
        one.add_router("", router)
    mounted(*apis)
    message = single_problem(expose("lambda_of_test", subject=router))
    assert number(message) == "E203" and "NinjaAPI" in message.hint


def lambda_of_test(request):
    return "done"


def test_router_that_is_not_mounted_is_an_error(expose):
    router = Router()
    router.get("/thing", response=str)(lambda_of_test)
    message = single_problem(expose("lambda_of_test", subject=router))
    assert number(message) == "E204" and "add_router" in message.hint


def test_api_outside_of_the_urlconf_is_an_error(expose):
    made = NinjaAPI(urls_namespace="made")
    made.get("/thing", response=str)(lambda_of_test)
    assert number(single_problem(expose("lambda_of_test", subject=made))) == "E204"


def test_operation_behind_another_one_is_an_error(mounted, expose):
    made = NinjaAPI(urls_namespace="made")
    made.get("/thing", response=str)(lambda request: "first")
    made.get("/thing", response=str)(lambda_of_test)
    mounted(made)
    assert number(single_problem(expose("lambda_of_test", subject=made))) == "E204"


def test_method_that_no_tool_has_is_an_error(mounted, expose):
    made = NinjaAPI(urls_namespace="made")
    made.api_operation(["OPTIONS"], "/thing", response=str)(lambda_of_test)
    mounted(made)
    assert number(single_problem(expose("lambda_of_test", subject=made))) == "E204"


def test_url_that_cannot_be_reversed_is_an_error(settings, expose):
    made = NinjaAPI(urls_namespace="made")
    made.get("/thing", response=str)(lambda_of_test)
    module = ModuleType("urls_of_test")
    module.urlpatterns = [re_path("^(a|b)/", made.urls)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = module
    assert number(single_problem(expose("lambda_of_test", subject=made))) == "E204"


# auth.


class Basic(HttpBasicAuth):
    def authenticate(self, request, username, password):
        return None


class InQuery(APIKeyQuery):
    def authenticate(self, request, key):
        return None


class InCookie(APIKeyCookie):
    def authenticate(self, request, key):
        return None


@pytest.mark.parametrize("auth", [Basic(), InQuery(), InCookie(), [Basic(), api.ApiKey()]])
def test_auth_that_needs_credentials_is_an_error(problem, auth):
    message = problem(lambda_of_test, auth=auth)
    assert number(message) == "E205" and "replace_auth = True" in message.hint


def test_auth_of_the_api_is_an_error(problem):
    message = problem(lambda_of_test, api_options={"auth": Basic()})
    assert number(message) == "E205"


@pytest.mark.parametrize(
    "auth", [django_auth, lambda request: request.user, [Basic(), django_auth], None]
)
def test_auth_that_can_accept_the_caller_is_right(mounted, expose, auth):
    made = NinjaAPI(urls_namespace="made")
    made.get("/thing", response=str, auth=auth)(lambda_of_test)
    mounted(made)
    valid_catalog(expose("lambda_of_test", subject=made))


def test_replaced_auth_is_right(mounted, expose):
    made = NinjaAPI(urls_namespace="made", auth=Basic())
    made.get("/thing", response=str)(lambda_of_test)
    mounted(made)
    valid_catalog(expose("lambda_of_test", subject=made, replace_auth=True))


# Parameters.


class Given(Schema):
    name: str


class Nested(Schema):
    inner: list[Given]


def test_argument_of_two_places_is_an_error(problem):
    def function(request, name, payload):
        return "done"

    function.__annotations__ = {"name": str, "payload": Given}
    message = problem(function, where="/thing/{name}")
    assert number(message) == "E206" and "URL and body" in message.msg


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(str, Header(...)), (str, Cookie(...))],
)
def test_parameter_that_no_tool_has_is_an_error(problem, annotation, default):
    def function(request, thing):
        return "done"

    function.__annotations__ = {"thing": annotation}
    function.__defaults__ = (default,)
    assert number(problem(function)) == "E207"


def test_stream_is_an_error(mounted, expose):
    streaming = pytest.importorskip("ninja.streaming")

    def function(request):
        yield "a"

    made = NinjaAPI(urls_namespace="made")
    made.get("/thing", response=streaming.SSE[str])(function)
    mounted(made)
    assert number(single_problem(expose("function", subject=made))) == "E208"


class Xml(BaseRenderer):
    media_type = "application/xml"


def test_renderer_that_writes_no_json_is_an_error(problem):
    message = problem(lambda_of_test, api_options={"renderer": Xml()})
    assert number(message) == "E208" and "application/xml" in message.msg


def test_object_in_the_query_string_is_an_error(problem):
    def function(request, given):
        return "done"

    function.__annotations__ = {"given": Query[Nested]}
    message = problem(function, method="get")
    assert number(message) == "E209" and "inner" in message.msg


class WithoutSchema:
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(str)


def test_type_without_a_schema_is_an_error(problem):
    def function(request, given):
        return "done"

    function.__annotations__ = {"given": WithoutSchema}
    function.__defaults__ = (Body(...),)
    assert number(problem(function)) == "E209"


# Warnings.


def test_operation_without_a_response_is_a_warning(expose):
    message = single_problem(expose("undeclared"))
    assert number(message) == "W200" and not message.is_serious()


class Login(Schema):
    username: str
    password: str


def test_secret_is_a_warning(problem):
    def function(request, payload):
        return "done"

    function.__annotations__ = {"payload": Login}
    message = problem(function)
    assert number(message) == "W201" and "password" in message.msg
