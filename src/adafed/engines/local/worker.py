"""A worker process: `python -m adafed.engines.local.worker FD` does units of work until the other end of FD closes.

It is a plain subprocess with JSON on a socket and raw numbers in shared memory: nothing is pickled, and a user's script
is not imported again, as multiprocessing would do.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import torch

from adafed.config.configuration import config_from
from adafed.data.sources import made_by_user
from adafed.engines.local.messages import decode, encode, unit_from_json
from adafed.engines.local.shared_memory import attach
from adafed.engines.station import Station
from adafed.engines.units import AskUnit, TrainUnit
from adafed.errors import AdafedError


def serve(connection: Connection) -> None:
    torch.set_num_threads(1)
    hello = decode(connection.recv_bytes())
    try:
        station = Station(config_from(hello["config"]))
        received = attach(1, station.visiting.received_width, hello["received"], on_disk=False).tensor[0]
        updates = attach(hello["rows"], station.visiting.width, hello["updates"], on_disk=hello["on_disk"])
    except AdafedError as error:
        connection.send_bytes(encode({"error": str(error)}))
        return
    # Files are the same for everybody who reads them; what a function makes may differ from call to call.
    data, partition = station.config.data, station.config.partition
    own = made_by_user(data.name, None if partition is None else partition.name)
    made = station.federation.checksum if own else None
    connection.send_bytes(encode({"ready": os.getpid(), "clients": len(station.federation.ids), "checksum": made}))
    while True:
        message = decode(connection.recv_bytes())
        connection.send_bytes(encode(_answer(station, message, received, updates.tensor)))
        updates.release()


def _answer(station: Station, message: dict[str, Any], received: torch.Tensor, updates: torch.Tensor) -> dict[str, Any]:
    try:
        unit = unit_from_json(message["unit"])
        if isinstance(unit, TrainUnit):
            return {"number": message["number"], "results": station.train(unit, received, updates)}
        if isinstance(unit, AskUnit):
            return {"number": message["number"], "results": station.ask(unit, received)}
        return {"number": message["number"], "results": station.measure(unit, received)}
    except AdafedError as error:
        return {"number": message["number"], "error": str(error)}
    except Exception:  # a bug, or the user's own model failing: the main process tells it with the traceback
        return {"number": message["number"], "crash": traceback.format_exc()}


def _end_with(descriptor: int) -> None:
    """A main process that was killed has given its run's lock back: what a unit would go on to write would lie in the
    next run's directory."""
    poll = select.poll()
    poll.register(descriptor, 0)  # which is told of a hang-up all the same, and of nothing else
    poll.poll()
    os._exit(0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    Thread(target=_end_with, args=(int(sys.argv[1]),), name="adafed-end-with-main", daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the main process is gone: nothing left to do
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
