"""Who a model serves worst: the clients at the bottom of a run's last evaluation."""

from __future__ import annotations

from pathlib import Path

from adafed.errors import AdafedError
from adafed.report.tables import Cell, Column, Row, Table
from adafed.runs.store import Store


def worst_clients(directory: Path, count: int, part: str = "test") -> Table:
    store = Store(directory / "rounds.sqlite", read_only=True)
    try:
        evaluated = [record for record in store.records(evaluated=True) if record.evaluation(part) is not None]
    finally:
        store.close()
    if not evaluated:
        raise AdafedError(f"{directory} has no evaluation on {part} yet")
    evaluation = evaluated[-1].evaluation(part)
    assert evaluation is not None
    scored = [(client, scores) for client, scores in evaluation.scores if scores.accuracy is not None]
    scored.sort(key=lambda one: (one[1].accuracy or 0.0, one[0]))
    rows = []
    for client, one in scored[:count]:
        loss = () if one.loss is None else (one.loss,)
        rows.append(Row(client, (Cell((100.0 * (one.accuracy or 0.0),)), Cell(loss), Cell((one.samples,)))))
    columns = (Column("accuracy %"), Column("loss", digits=3), Column(f"{part} samples", digits=0))
    title = f"the {len(rows)} worst of {len(scored)} clients in round {evaluated[-1].round}"
    return Table(title, columns, tuple(rows), head="client")
