"""One worker process: started, spoken to with a limit on every wait, and ended."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

from adafed.engines.local.messages import decode, encode

# What a step frees the next one asks for again. glibc would give it back to the system in between and have it fetched
# anew, page by page.
KEPT_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TOP_PAD_": str(2**26),
}


class Gone(Exception):
    """It has ended, or does not answer: how, in words."""


class WorkerProcess:
    """`patience` is how long, in seconds, it may take to read a message or to send the rest of one."""

    def __init__(self, hello: Mapping[str, Any], shared: Sequence[int], patience: float) -> None:
        here, there = socket.socketpair()
        limit = struct.pack("ll", int(min(patience, 2**31)), int(patience % 1 * 1e6))
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        path = os.pathsep.join([os.getcwd() if entry == "" else entry for entry in sys.path])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.patience = patience
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "adafed.engines.local.worker", str(there.fileno())],
                pass_fds=(there.fileno(), *shared),
                env=KEPT_MEMORY | os.environ | threads | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C at the terminal is for the main process alone
            )
        finally:
            there.close()
        self.pid = self._process.pid
        self.connection = Connection(here.detach())
        with suppress(Gone):  # whoever waits for its answer will hear of it
            self.send(encode(dict(hello)))

    def send(self, message: bytes) -> None:
        try:
            self.connection.send_bytes(message)
        except BlockingIOError:
            raise Gone(self.overdue(self.patience)) from None
        except OSError:
            raise Gone(self._how_it_ended()) from None

    def receive(self) -> dict[str, Any]:
        try:
            return decode(self.connection.recv_bytes())
        except BlockingIOError:
            raise Gone(self.overdue(self.patience)) from None
        except (EOFError, OSError):
            raise Gone(self._how_it_ended()) from None

    def overdue(self, seconds: float) -> str:
        return f"{'was stopped and ' if self.stopped else ''}did not answer for {seconds:g} s"

    @property
    def stopped(self) -> bool:
        """By a signal, and so not at work; False where the system does not say."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
        except (OSError, IndexError):
            return False

    def close(self) -> None:
        """It leaves when it sees the end of its socket."""
        self.connection.close()

    def kill(self) -> None:
        self._process.kill()

    def ended(self, seconds: float) -> bool:
        """Whether it is gone within so many seconds."""
        try:
            self._process.wait(timeout=max(seconds, 0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _how_it_ended(self) -> str:
        if not self.ended(self.patience):  # it has closed its socket and hangs on its way out
            return self.overdue(self.patience)
        code = self._process.returncode
        hint = "; the system may have run out of memory" if code == -9 else ""
        return f"ended ({f'signal {-code}' if code < 0 else f'exit code {code}'}{hint})"


def end_all(processes: Sequence[WorkerProcess], *, at_once: bool, seconds: float = 5.0) -> None:
    """All of them gone; who takes longer than so many seconds over what it is at is killed."""
    for process in processes:
        process.close()
        if at_once:
            process.kill()
    end = monotonic() + seconds
    for process in processes:
        if not process.ended(end - monotonic()):
            process.kill()
            process.ended(60.0)
