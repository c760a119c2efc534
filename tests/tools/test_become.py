import os
import signal
import subprocess
import sys

import pytest

from tools.environment import ROOT

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
WAITS = """
import os, signal, sys, time
try:
    print(os.getpid(), flush=True)
    signal.pause()
except KeyboardInterrupt:
    time.sleep(0.5)
    sys.exit(5)
"""


@pytest.fixture
def start():
    """Runs a program; returns the process, and the id of the one that waits for a signal."""
    started = []

    def run(program):
        process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, int(process.stdout.readline())

    yield run
    for process in started:
        with process:
            process.kill()


@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_is_the_programs(code, tmp_path):
    program = f"import os, sys; assert os.getcwd() == {str(tmp_path)!r}; sys.exit({code})"
    done = subprocess.run([sys.executable, "-c", becoming(program, tmp_path)], cwd=ROOT)
    assert done.returncode == code


def becoming(program, cwd=ROOT):
    return f"""
import os, sys
from tools.become import become
sys.exit(become([sys.executable, "-c", {program!r}], {str(cwd)!r}, os.environ))
"""


@posix
def test_a_signal_is_the_programs_to_answer(start):
    process, waiting = start(becoming(WAITS))
    assert waiting == process.pid
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 5


@posix
def test_where_it_is_waited_for_ctrl_c_ends_the_program_alone(start):
    """As on Windows: the signal comes to both, and the program takes its time."""
    process, waiting = start(f"""
import subprocess, sys
from tools.become import outlived
sys.exit(outlived(subprocess.Popen([sys.executable, "-c", {WAITS!r}])))
""")
    assert waiting != process.pid
    for pid in (process.pid, waiting):
        os.kill(pid, signal.SIGINT)
    assert process.wait(10) == 5
