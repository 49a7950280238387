"""Processes that end with the one that started them, whatever happens to it.

The parent holds the one end of a pipe and the child the other. However the parent ends, also by SIGKILL and also before
it has noted its child's number, the system closes its end, and the child, which does nothing but wait for that in a
thread, ends itself. A run that ends so loses the round under way and no more.
"""

from __future__ import annotations

import os
import signal
from threading import Thread
from types import TracebackType

VARIABLE = "ADAFED_LIFELINE"  # tells the child which descriptor to watch


class Lifeline:
    """The parent's end. Pass `descriptor` and `environment` to subprocess; leaving the context ends the children."""

    def __init__(self) -> None:
        self.descriptor, self._held = os.pipe()  # neither is inherited, unless passed on

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self.descriptor)}

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._held)
        os.close(self.descriptor)


def end_with_parent() -> None:
    """For a child: end by SIGTERM as soon as the parent's end is closed. Nothing where nobody holds a lifeline."""
    told = os.environ.pop(VARIABLE, "")  # this process's children have parents of their own
    if told.isdecimal():
        Thread(target=_watch, args=(int(told),), name="adafed-lifeline", daemon=True).start()


def _watch(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1):
            pass
    except OSError:  # no such descriptor: whoever set the variable did not pass it on
        return
    os.kill(os.getpid(), signal.SIGTERM)
