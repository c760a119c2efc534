"""The person of the conformance run: signs in, agrees, and does not go in circles."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from tools.person import Forms, Lost, Person

LOGIN = '<form method="post"><input name="csrf" value="&lt;7"><input name="username"><input name="password"></form>'  # noqa: E501
CONSENT = """
<form method="post"><button name="switch" value="true">Somebody else</button></form>
<form method="post"><input type="hidden" name="csrf" value="8">
<button name="allow" value="true">Allow</button><button name="allow" value="false">Cancel</button>
</form>"""


class Site(BaseHTTPRequestHandler):
    """A login, a page of consent and a callback; who is signed in has a cookie."""

    def do_GET(self):
        if self.path.startswith("/callback"):
            return self.say(200, "You may close this page.")
        if self.path != "/authorize?q=1":
            return self.say(404, "No such page.")
        return self.say(200, CONSENT if "sid=1" in self.headers.get("Cookie", "") else LOGIN)

    def do_POST(self):
        sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.posted.append({name: values[-1] for name, values in sent.items()})
        if sent.get("allow") == ["true"]:
            return self.say(302, "", Location="/callback?code=secret")
        cookie = {"Set-Cookie": "sid=1"} if sent.get("password") == ["right"] else {}
        return self.say(302, "", Location=self.path, **cookie)

    def say(self, status, text, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *words):
        pass


@pytest.fixture
def site():
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as serving:
        serving.posted, serving.origin = [], f"http://127.0.0.1:{serving.server_port}"
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def agree(site, password="right", path="/authorize?q=1"):
    Person("alice", password).agree(site.origin + path, f"{site.origin}/callback")


def test_a_person_signs_in_and_agrees(site):
    agree(site)
    login, consent = site.posted
    assert login == {"csrf": "<7", "username": "alice", "password": "right"}
    assert consent == {"csrf": "8", "allow": "true"}


def test_who_has_no_account_is_lost_and_says_no_secret(site):
    with pytest.raises(Lost, match=f"^No page led to .*{re.escape('/authorize')}$") as lost:
        agree(site, "wrong")
    assert "wrong" not in str(lost.value) and "q=1" not in str(lost.value)


def test_a_page_that_asks_nothing_is_told(site):
    with pytest.raises(Lost, match="(?s)Nothing is asked on this page:.*You may close"):
        Person("alice", "right").agree(f"{site.origin}/callback/other", f"{site.origin}/callback")


def test_an_error_is_told_by_its_page(site):
    with pytest.raises(Lost, match="(?s)404 at .*/nowhere:\nNo such page"):
        agree(site, path="/nowhere?code=secret")


def test_of_a_name_that_comes_twice_the_first_counts():
    assert Forms(CONSENT).found == [{"switch": "true"}, {"csrf": "8", "allow": "true"}]
