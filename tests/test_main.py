"""The program as a whole: Ctrl-C while it begins and while it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest


def listening() -> None:
    """Whoever starts the tests in the background has them ignore Ctrl-C, and their children with them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, 0.02, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0])
def test_ctrl_c_while_it_begins_is_no_traceback(after: float, patience: float) -> None:
    """From the moment that the program has come to its first line."""
    code = "import sys; sys.argv = ['adafed', 'demo']; from adafed.__main__ import main; print(flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listening
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        time.sleep(0.01 + after)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=patience)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in told
    assert "Exception ignored" not in told


@pytest.mark.slow
def test_ctrl_c_while_it_ends_is_no_traceback(patience: float) -> None:
    """Python waits for threads at its end; whoever does not want to wait is not told of an exception."""
    code = """
import sys, threading, time
sys.argv = ["adafed", "--version"]
threading.Thread(target=time.sleep, args=(30,)).start()
from adafed.__main__ import main
main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listening
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=patience)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert told == ""


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, adafed, adafed.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
