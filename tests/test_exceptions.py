"""One small tree per audience, and unwindings that no code of a project eats."""

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
def test_an_errors_docstring_is_its_message(kind):
    assert kind().message == str(kind()) == kind.__doc__.strip()
    assert kind("Not on a Sunday.").message == "Not on a Sunday."


@pytest.mark.parametrize("kind", [*FOR_THE_MODEL, mcp.Unsupported, mcp.UrlRequired])
def test_the_model_reads_them_all(kind):
    assert issubclass(kind, mcp.ToolError) and not issubclass(kind, RunEnded)


def test_an_error_of_the_projects_own():
    class OutOfStock(mcp.ToolError):
        """There are none left.

        Order some.
        """

    class Worse(OutOfStock):
        pass

    assert OutOfStock().message == "There are none left.\n\nOrder some."
    assert Worse().message == OutOfStock().message and Worse("").message


def test_a_message_may_be_lazy():
    assert mcp.ToolError(gettext_lazy("Yes")).message == "Yes"
    assert type(mcp.ToolError(gettext_lazy("Yes")).message) is str


def test_without_docstrings_there_is_a_message_too():
    code = "from django_mcp.exceptions import *; print(ToolError().message, TimedOut().message)"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["ToolError", "TimedOut"], done.stderr


def test_what_they_carry():
    assert mcp.Declined().action == "decline" and mcp.Declined(action="cancel").action == "cancel"
    assert mcp.ClientError("No.", code=-1).code == -1 and mcp.ClientError().code == 0


def test_what_a_client_lacks_is_named():
    error = mcp.Unsupported({"sampling": {"tools": {}}, "elicitation": {}})
    assert (
        error.message == "This client does not support elicitation, sampling, which the call needs."
    )
    assert error.required == {"sampling": {"tools": {}}, "elicitation": {}}
    assert mcp.Unsupported({}, "Use another client.").message == "Use another client."


def test_where_to_go():
    error = mcp.UrlRequired("Pay first.", "https://shop.example/pay?id={elicitation_id}")
    other = mcp.UrlRequired("Pay first.", "https://shop.example/pay")
    assert error.url == f"https://shop.example/pay?id={error.id}" and error.id != other.id
    assert error.message == f"Pay first. Open {error.url} and try again."
    assert error.prompt == "Pay first." and error.template.endswith("{elicitation_id}")


def test_what_is_for_the_developer():
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
def test_no_code_eats_an_unwinding(unwinding):
    assert isinstance(unwinding, RunEnded) and not isinstance(unwinding, Exception)
    with pytest.raises(RunEnded):
        try:
            raise unwinding
        except Exception:
            pass


def test_what_unwindings_carry():
    assert InputRequired({"a": 1}).questions == {"a": 1}
    step = OnceNeeded("charge", print)
    assert (step.key, step.function) == ("charge", print)


def test_being_busy_is_no_tools_failure():
    assert not issubclass(Busy, mcp.ToolError) and "try again" in Busy.__doc__


def test_everything_here_says_what_it_means():
    for name, kind in vars(exceptions).items():
        if isinstance(kind, type) and kind.__module__ == exceptions.__name__:
            assert kind.__doc__, name
