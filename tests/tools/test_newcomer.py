"""The newcomer types what a page shows; the scripts themselves are run by `make ci`."""

import os
import sys

import pytest

from tools import newcomer, pages, serving
from tools.environment import ROOT
from tools.newcomer import PORT, REPOSITORY, SCRIPTS, Typist, compare, installed, on_port
from tools.terminal import Failed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="It needs a shell.")
SERVER = """
import http.server, socketserver, sys
print("Quit the server with CONTROL-C.", flush=True)
port = int(sys.argv[-1])
http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def typist(tmp_path):
    return Typist(tmp_path, str(serving.free_port()))


def page(*lines):
    return list(pages.steps("\n".join(["```console", *lines, "```"])))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_each_page_has_something_to_type(script):
    found = list(pages.steps((ROOT / script.page).read_text("utf-8"), script.section))
    assert len([step for step in found if isinstance(step, pages.Command)]) >= 3
    assert any(newcomer.SERVES.search(step.text) for step in found)


def test_a_page_that_says_the_truth_is_typed_to_its_end(typist, tmp_path):
    typist.type(page("$ echo one", "one", "$ mkdir a && cd a", "$ touch b"))
    assert (tmp_path / "home/a/b").exists()


@pytest.mark.parametrize(
    "lines",
    [
        ("$ echo one", "two"),
        ("$ false",),
        ("$ true", "SomeError: it failed"),
        ("$ no-such-program",),
    ],
    ids=["other words", "a failure", "no failure", "nothing"],
)
def test_a_page_that_does_not_is_found_out(typist, lines):
    with pytest.raises(Failed):
        typist.type(page(*lines))


def test_where_an_error_is_shown_the_command_fails(typist):
    typist.type(page("$ echo SomeError: it failed; false", "SomeError: it failed"))


def test_a_server_stays_while_another_terminal_is_opened(typist, tmp_path):
    (tmp_path / "home/manage.py").write_text(SERVER)
    typist.type(
        page(
            *("$ mkdir a && cp manage.py a && cd a", "$ export SEEN=yes"),
            *("$ python manage.py runserver", "Quit the server with CONTROL-C."),
            *('$ basename "$PWD" && echo "seen: $SEEN"', "home", "seen:"),
            f"$ {sys.executable} -c 'from urllib.request import *; urlopen(\"http://127.0.0.1:{PORT}\")'",
        )
    )


def test_a_server_that_does_not_start_is_found_out(typist):
    with pytest.raises(Failed, match="exit code"):
        typist.type(page("$ python manage.py runserver"))


def test_the_repository_is_put_in(typist):
    typist.type(page(f"$ ls {REPOSITORY}/pyproject.toml", f"{ROOT}/pyproject.toml"))


def test_nothing_of_this_environment_is_there(monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", "/x")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "x")
    found = newcomer.environment()
    assert not {"VIRTUAL_ENV", "DJANGO_SETTINGS_MODULE"} & set(found)
    assert found["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)


def test_what_is_installed_is_known_before():
    steps = page("$ pip install -q 'a[b]' c", "$ pip --version", "$ python -m pip install d")
    assert list(installed(steps)) == ["a[b]", "c"]


def test_a_server_is_started_on_another_port():
    assert on_port("make demo", "1") == 'make demo ARGS="--port 1"'
    assert on_port("python manage.py runserver", "1") == "python manage.py runserver 1"
    assert on_port("make demo", PORT) == "make demo"


def test_what_is_not_shown_is_not_compared():
    compare("x", "", "anything")
    with pytest.raises(Failed, match="(?s)should print.*this.*printed.*anything"):
        compare("x", "this", "anything")
