"""Units that wait for worker processes."""

from __future__ import annotations

from adafed.engines.local.unit_queue import UnitQueue
from adafed.engines.units import MeasureUnit, TrainUnit
from adafed.training.local import Assignment


def test_a_client_goes_to_its_own_worker_unless_that_one_is_behind() -> None:
    units = [MeasureUnit((client,), "test") for client in (0, 2, 4, 6, 1)]
    queue = UnitQueue(units, 2)
    assert [queue.pop(worker)[0] for worker in (0, 1, 1, 1, 0)] == [0, 4, 1, 2, 3]
    assert len(queue) == 0


def test_every_unit_is_handed_out_once() -> None:
    units = [TrainUnit((Assignment(client, 1, 0.1),), (client,), True, False) for client in range(17)]
    queue = UnitQueue(units, 3)
    assert sorted(queue.pop(k % 3)[0] for k in range(17)) == list(range(17))
