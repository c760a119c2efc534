"""Exceptions for tools and clients, and control flow that project code cannot catch."""

import subprocess
import sys

import pytest
from django.core.checks import Error
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp import exceptions
from django_mcp.exceptions import (
    AlreadyRegistered,
    Busy,
    InputRequired,
    InvalidArguments,
    Misdeclared,
    OnceNeeded,
    RunEnded,
    Stopped,
)

FOR_THE_MODEL = [
    mcp.ToolError, mcp.Declined, mcp.TimedOut, mcp.ClientError, InvalidArguments,
]  # fmt: skip


@pytest.mark.parametrize("kind", FOR_THE_MODEL)
def test_default_message_is_the_docstring(kind):
    assert kind().message == str(kind()) == kind.__doc__.strip()
    assert kind("Not on a Sunday.").message == "Not on a Sunday."


@pytest.mark.parametrize("kind", [*FOR_THE_MODEL, mcp.Unsupported, mcp.UrlRequired])
def test_tool_errors_are_shown_to_the_model(kind):
    assert issubclass(kind, mcp.ToolError) and not issubclass(kind, RunEnded)


def test_subclass_of_tool_error_uses_its_docstring():
    class OutOfStock(mcp.ToolError):
        """There are none left.

        Order some.
        """

    class Worse(OutOfStock):
        pass

    assert OutOfStock().message == "There are none left.\n\nOrder some."
    assert Worse().message == OutOfStock().message and Worse("").message


def test_message_may_be_a_lazy_translation():
    assert mcp.ToolError(gettext_lazy("Yes")).message == "Yes"
    assert type(mcp.ToolError(gettext_lazy("Yes")).message) is str


def test_message_exists_without_docstrings():
    code = "from django_mcp.exceptions import *; print(ToolError().message, TimedOut().message)"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["ToolError", "TimedOut"], done.stderr


def test_exceptions_have_their_attributes():
    assert mcp.Declined().action == "decline" and mcp.Declined(action="cancel").action == "cancel"
    assert mcp.ClientError("No.", code=-1).code == -1 and mcp.ClientError().code == 0


def test_unsupported_names_the_missing_capabilities():
    error = mcp.Unsupported({"sampling": {"tools": {}}, "elicitation": {}})
    assert (
        error.message == "This client does not support elicitation, sampling, which the call needs."
    )
    assert error.required == {"sampling": {"tools": {}}, "elicitation": {}}
    assert mcp.Unsupported({}, "Use another client.").message == "Use another client."


def test_url_required_contains_url_and_id():
    error = mcp.UrlRequired("Pay first.", "https://shop.example/pay?id={elicitation_id}")
    other = mcp.UrlRequired("Pay first.", "https://shop.example/pay")
    assert error.url == f"https://shop.example/pay?id={error.id}" and error.id != other.id
    assert error.message == f"Pay first. Open {error.url} and try again."
    assert error._prompt == "Pay first." and error._template.endswith("{elicitation_id}")


def test_declaration_errors_are_improperly_configured():
    assert issubclass(AlreadyRegistered, ImproperlyConfigured)
    messages = [
        Error("One.", hint="Do.", id="django_mcp.E001"),
        Error("Two.", id="django_mcp.E002"),
    ]
    error = Misdeclared(messages)
    assert error.messages is messages and isinstance(error, ImproperlyConfigured)
    for words in ("One.", "Two.", "Do.", "django_mcp.E001"):
        assert words in str(error)


@pytest.mark.parametrize(
    "unwinding", [InputRequired({"a": 1}), OnceNeeded("a", print), Stopped(), RunEnded()]
)
def test_run_ended_is_not_caught_by_except_exception(unwinding):
    assert isinstance(unwinding, RunEnded) and not isinstance(unwinding, Exception)
    with pytest.raises(RunEnded):
        try:
            raise unwinding
        except Exception:
            pass


def test_run_ended_exceptions_have_their_attributes():
    assert InputRequired({"a": 1}).questions == {"a": 1}
    step = OnceNeeded("charge", print)
    assert (step.key, step.function) == ("charge", print)


def test_busy_is_not_a_tool_error():
    assert not issubclass(Busy, mcp.ToolError) and "try again" in Busy.__doc__


def test_every_exception_has_a_docstring():
    for name, kind in vars(exceptions).items():
        if isinstance(kind, type) and kind.__module__ == exceptions.__name__:
            assert kind.__doc__, name
