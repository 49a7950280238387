"""The command line as a program: `adafed`, or `python -m adafed`.

What it imports takes a second, and so may its end: whoever presses Ctrl-C there wants no traceback. So until the
commands are there, and again when all is said and saved, Ctrl-C does what it does to any program.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not so under nohup
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from adafed.cli import main as command_line

    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command_line()
    except KeyboardInterrupt:  # once more, while the first was being told
        sys.exit(130)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
