"""The live display, and Ctrl-C at awkward moments."""

from __future__ import annotations

import io
import os
import signal

import pytest
from rich.console import Console

from adafed.report.progress import Display, stop_after_the_round


class InterruptedWhileWriting(io.TextIOWrapper):
    """A stream whose user presses Ctrl-C in the middle of the first write, and which refuses a write within a write."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.pressed = self.busy = False

    def write(self, text: str) -> int:
        if self.busy:
            raise RuntimeError("reentrant call")
        self.busy = True
        try:
            if not self.pressed:
                self.pressed = True
                os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)
        finally:
            self.busy = False

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def test_ctrl_c_while_the_display_prints_stops_the_run_and_says_so() -> None:
    stream = InterruptedWhileWriting()
    console = Console(file=stream)
    with stop_after_the_round(console) as stopped:
        assert not stopped
        console.print("a line of the display")
        assert stopped
    assert "a line of the display" in stream.text()
    assert "stopping after this round" in stream.text()


def test_a_second_ctrl_c_stops_at_once_and_the_handler_before_is_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_after_the_round(Console(file=io.StringIO())) as stopped:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_quiet_display_prints_nothing() -> None:
    stream = io.StringIO()
    with Display(Console(file=stream), quiet=True) as display:
        display.show("a run", 10, 1)
    assert stream.getvalue() == ""
