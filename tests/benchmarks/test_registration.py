"""A registration that makes no new client is no result; what it cost is judged."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.registration import MOST, ROUND, Lane
from benchmarks.running import Running
from benchmarks.wires import Wrong

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="benchmarks run on Linux")


class Site(BaseHTTPRequestHandler):
    """Answers a registration by what the test says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, told = self.server.answers(said)
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def site():
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as serving:
        serving.answers = lambda said: (201, {"client_id": said["client_name"]})
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def lane(site):
    """Registers there, and looks at the clock of a process that waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield Lane("few", Running(process, site.server_address, Path(os.devnull), {}))


def test_a_round_registers_clients_that_differ_and_counts_all_but_the_first(lane):
    lane.round()
    lane.round()
    assert lane.given == {f"Agent {number}" for number in range(2 * ROUND)}
    assert len(lane.spent) == len(lane.waited) == 2 * (ROUND - 1)
    assert all(took > 0 for took in lane.waited)


@pytest.mark.parametrize(
    "answer", [(429, {}), (200, {"client_id": "x"}), (201, {"client_id": "1"})]
)
def test_anything_else_is_wrong(lane, site, answer):
    lane.given.add("1")
    site.answers = lambda said: answer
    with pytest.raises(Wrong, match=str(answer[0])):
        lane.round()


def test_19_of_20_are_judged():
    lane = Lane("few", None, [1.0] * 97 + [MOST + 1] * 3, [2.0] * 100)
    assert lane.is_met and "1.0       1.0       2.0       2.0" in str(lane)
    lane.spent[:7] = [MOST + 1] * 7
    assert not lane.is_met


def test_the_processors_time_of_a_process_is_its_own():
    code = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    busy = [sys.executable, "-c", f"{code}\nprint(flush=True); input()"]
    with subprocess.Popen(busy, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        began = time.perf_counter()
        process.stdout.readline()
        spent = Running(process, ("", 0), Path(os.devnull), {}).cpu()
        assert 0.3 <= spent <= time.perf_counter() - began + 1
        process.communicate(b"\n")
