"""Flower as an engine: any rule as a strategy, a client that tells what rules need, experiments on Flower."""

from logging import Filter, LogRecord, getLogger
from pathlib import Path

from adafed.visible import visible

_HERE = str(Path(__file__).parent)


class _Visible(Filter):
    """Nodes send reasons and names, which land in the log: nothing in them steers the terminal it is read on."""

    def filter(self, record: LogRecord) -> bool:
        if record.pathname.startswith(_HERE):
            record.msg, record.args = visible(record.getMessage()), ()
        return True


getLogger("flwr").addFilter(_Visible())
