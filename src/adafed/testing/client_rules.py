"""What every client rule must do, whatever its method: `check_client_rule(rule)` for rules of your own.

The rule is run on a small federation by the simulator. Each property is a function of a rule that raises AssertionError
with a sentence; CLIENT_PROPERTIES holds them all.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from adafed.client_rules.base import CLIENT_RULES, ClientRule, Tensors
from adafed.config.configuration import Config, config_from
from adafed.engines.local.simulate import Simulation
from adafed.engines.station import Station
from adafed.engines.units import KeptFile, TrainUnit
from adafed.errors import AdafedError
from adafed.rounds.round import ServerHalf
from adafed.server.state import ServerState
from adafed.testing.claims import check, claim
from adafed.training.local import Assignment

ROUNDS = 5  # enough for every client to come twice, and for a stop in the middle
SMALL: dict[str, Any] = {
    "rounds": ROUNDS,
    "data": {"name": "synthetic", "clients": 4, "samples": 24, "features": 6, "classes": 3},
    "model": {"name": "mlp", "hidden": [5]},
    "local": {"epochs": 2, "batch_size": 8, "lr": 0.05},
    "cohort": {"count": 3},
    "rule": {"name": "fedavg", "weighted": False},
    "run": {"workers": 0},
}


def check_client_rule(checked: ClientRule | type[ClientRule]) -> None:
    """Pass where the rule has all CLIENT_PROPERTIES.

    Args:
        checked: The rule, or its class, which is made with its defaults; check a rule once for each set of options that
            takes another path. A rule with a plan of the run must be content with five rounds of four clients.

    Raises:
        AssertionError: With a sentence that names the property that it does not have.
    """
    check(checked() if isinstance(checked, type) else checked, CLIENT_PROPERTIES)


def is_described(rule: ClientRule) -> None:
    """It has a name, a summary and options that lead back to it, through JSON too."""
    told = "is described for people and machines"
    claim(rule, told, bool(rule.summary), "its summary is empty; it must say what the rule does")
    given = json.loads(json.dumps(rule.options()))
    entry = _entry(rule)
    if entry is not None:
        again = CLIENT_RULES.make(rule.name, **given)
        claim(rule, told, again == rule, f"its name and options make {again!r} instead of {rule!r}")
    claim(rule, told, set(rule.sums) <= {"update", *rule.sends}, "it sums what is neither the update nor sent")


def finite_output(rule: ClientRule) -> None:
    """What clients send, keep and make of the model is finite where training goes well."""
    told = "finite input gives finite output"
    rows, kept, _ = _visited(rule, [0, 1])
    for client, row in rows.items():
        claim(rule, told, bool(row.isfinite().all()), f"client {client} sends what is not finite")
        for name, one in kept[client].items():
            claim(rule, told, bool(one.isfinite().all()), f"{name}, which client {client} keeps, is not finite")
    claim(rule, told, bool(_ran(rule).parameters.isfinite().all()), "the model of a run is not finite")


def keeps_and_sends_what_it_says(rule: ClientRule) -> None:
    """What is found in a client's file, and in its row, is what `keeps` and `sends` name."""
    told = "keeps and sends what it says"
    _, kept, _ = _visited(rule, [0])
    claim(rule, told, set(kept[0]) == set(rule.keeps), f"keeps names {rule.keeps} and a client kept {sorted(kept[0])}")


def order_of_visits_does_not_matter(rule: ClientRule) -> None:
    """Clients visited in another order have the same updates, to the bit, and keep and tell the same."""
    told = "does not depend on the order of the clients"
    rows, kept, tells = _visited(rule, [0, 1, 2, 3])
    other_rows, other_kept, other_tells = _visited(rule, [2, 0, 3, 1])
    for client in range(4):
        claim(rule, told, torch.equal(rows[client], other_rows[client]), f"client {client} sends another row")
        claim(rule, told, _equal(kept[client], other_kept[client]), f"client {client} keeps something else")
        claim(rule, told, tells[client] == other_tells[client], f"client {client} tells something else")


def is_repeatable(rule: ClientRule) -> None:
    """Two runs of one configuration give the same bits."""
    _same_state(rule, "gives the same bits again", _ran(rule), _ran(rule))


def goes_on_after_a_stop(rule: ClientRule) -> None:
    """A run that was stopped and goes on, from what was saved alone, ends in the same bits."""
    with tempfile.TemporaryDirectory(prefix="adafed-") as folder:
        for rounds in (1, 3, ROUNDS):
            resumed = _ran(rule, Path(folder) / "run", rounds)
        _same_state(rule, "goes on after a stop to the same bits", _ran(rule), resumed)


def state_goes_through_a_file(rule: ClientRule) -> None:
    """What the server knows of the rule is tensors that a checkpoint keeps unchanged."""
    told, state = "has a state that a checkpoint keeps", _ran(rule)
    tensors, numbers = state.packed()
    again = ServerState.unpacked(tensors, json.loads(json.dumps(numbers)))
    _same_state(rule, told, state, again)


def works_in_other_processes(rule: ClientRule) -> None:
    """Worker processes give the same bits. A rule that they cannot import by its name is not checked."""
    if _entry(rule) is not None:
        told = "gives the same bits in worker processes"
        _same_state(rule, told, _ran(rule), _ran(rule, workers=2))


CLIENT_PROPERTIES: dict[str, Callable[[ClientRule], None]] = {
    "is described for people and machines": is_described,
    "keeps and sends what it says": keeps_and_sends_what_it_says,
    "finite input gives finite output": finite_output,
    "does not depend on the order of the clients": order_of_visits_does_not_matter,
    "gives the same bits again": is_repeatable,
    "has a state that a checkpoint keeps": state_goes_through_a_file,
    "goes on after a stop to the same bits": goes_on_after_a_stop,
    "gives the same bits in worker processes": works_in_other_processes,
}


def _entry(rule: ClientRule) -> type[ClientRule] | None:
    """The rule's class as its name leads to it; None where it does not, as for one defined in a function."""
    try:
        found = CLIENT_RULES.entry(rule.name)
    except AdafedError:
        return None
    return found if found is type(rule) else None


def _config(rule: ClientRule, workers: int = 0) -> Config:
    """With this very rule in it, whether or not its name leads to it."""
    if workers:
        given = {key: value for key, value in rule.options().items() if value is not None}
        return config_from({**SMALL, "client": {"rules": [{"name": rule.name, **given}]}, "run": {"workers": workers}})
    config = config_from(SMALL)
    config.__dict__["parts"] = replace(config.parts, client_rules=(rule,))
    return config


def _ran(rule: ClientRule, directory: Path | None = None, rounds: int = ROUNDS, workers: int = 0) -> ServerState:
    """The state after so many rounds of the whole run."""
    with Simulation(_config(rule, workers), directory=directory) as simulation:
        for _ in islice(simulation.rounds(), max(rounds - simulation.state.round, 0)):
            pass
        return simulation.state


def _visited(
    rule: ClientRule, order: Sequence[int]
) -> tuple[dict[int, torch.Tensor], dict[int, Tensors], dict[int, object]]:
    """A first and a second visit of each client: their last rows, what they keep, and what they told."""
    config = _config(rule)
    station, half = Station(config), ServerHalf.of(config, [str(k) for k in range(4)])
    state = half.first_state(station.initial, station.model.length)
    rows: dict[int, torch.Tensor] = {}
    kept: dict[int, Tensors] = {}
    tells: dict[int, object] = {}
    with tempfile.TemporaryDirectory(prefix="adafed-") as folder:
        for t in (1, 2):
            for client in order:
                row = torch.zeros(1, station.visiting.width)
                files = [str(Path(folder) / f"{client}-{one}.safetensors") for one in (t - 1, t)]
                file = (KeptFile(files[0] if t > 1 else None, files[1]),)
                work = (Assignment(client, t, 0.05),)
                orders = (json.loads(json.dumps(half.orders(state, t, [client])[0])),)
                (report,) = station.train(TrainUnit(work, (0,), True, False, file, orders), half.broadcast(state), row)
                rows[client], tells[client] = row[0], json.loads(json.dumps(report.told))
                kept[client] = rule.own(load_file(files[1]))
    return rows, kept, tells


def _same_state(rule: ClientRule, told: str, one: ServerState, other: ServerState) -> None:
    claim(rule, told, torch.equal(one.parameters, other.parameters), "the models differ")
    claim(rule, told, _equal(one.known, other.known), "what the server knows differs")
    claim(rule, told, one.kept == other.kept, "who kept something when differs")


def _equal(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
