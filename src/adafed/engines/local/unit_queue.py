"""Units of work that wait for a worker process, and which of them each takes next."""

from __future__ import annotations

from collections.abc import Sequence

from adafed.engines.local.messages import Unit, encode, unit_to_json
from adafed.engines.units import AskUnit, MeasureUnit


class UnitQueue:
    """Units that wait. A client goes to the same worker each time, which has its samples at hand, unless that one is
    behind the others."""

    def __init__(self, units: Sequence[Unit], workers: int) -> None:
        self._units = units
        self._own: list[list[int]] = [[] for _ in range(workers)]
        for number in range(len(units) - 1, -1, -1):
            self._own[clients_of(units[number])[0] % workers].append(number)
        # A round's first messages are made before any is sent: its sender may have to wait for a core after the first.
        self._made = {number: self._message(number) for own in self._own for number in own[-1:]}

    def __len__(self) -> int:
        return sum(map(len, self._own))

    def pop(self, worker: int) -> tuple[int, bytes]:
        own = self._own[worker] or max(self._own, key=len)
        number = own.pop()
        return number, self._made.pop(number, None) or self._message(number)

    def _message(self, number: int) -> bytes:
        return encode({"number": number, "unit": unit_to_json(self._units[number])})

    def put_back(self, worker: int, number: int) -> None:
        self._own[worker].append(number)


def clients_of(unit: Unit) -> Sequence[int]:
    """Whose work a unit is."""
    if isinstance(unit, AskUnit):
        return [unit.client]
    return unit.clients if isinstance(unit, MeasureUnit) else [work.client for work in unit.work]
