"""People's own rule, model, partition, data, optimiser and schedule: one file outside the package, named in a
configuration as `module:attribute`, and run here and in a worker process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed import AdafedError, Config, config_from
from adafed.config.loading import load_config
from adafed.data.partition import partition
from adafed.data.sources import open_federation
from adafed.registry import options
from adafed.testing.server_rules import check_rule

SOURCE = '''
from dataclasses import dataclass, field
import numpy as np
import torch
from adafed import Rule
from adafed.server.optimizers import ServerOptimizer
from adafed.server.schedules import Schedule
from adafed.server_rules import Answer

@dataclass(frozen=True)
class Tilted(Rule):
    """Weights by the power of the loss."""
    summary = "the loss to a power is the weight"
    power: float = 1.0
    floor: float = field(default=0.1, metadata={"key": "lambda", "help": "a loss below it counts as this"})
    def __post_init__(self):
        if self.floor <= 0:
            raise ValueError("floor")
    @property
    def needs(self):
        return frozenset({"losses"})
    def answer(self, facts, state):
        weights = np.clip(facts.need_losses(), self.floor, 1e9) ** self.power
        return Answer(weights / weights.sum())

@dataclass(frozen=True)
class Halved(ServerOptimizer):
    share: float = 0.5
    def step(self, parameters, direction, rate, state):
        return parameters - self.share * rate * direction, {}

@dataclass(frozen=True)
class Late(Schedule):
    def __call__(self, round):
        return min(1.0, round / 2)

class Holder:
    Tilted = Tilted

class Net(torch.nn.Module):
    def __init__(self, input_shape, classes, hidden=4):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(input_shape[0], hidden), torch.nn.ReLU(),
                                          torch.nn.Linear(hidden, classes))
    def forward(self, x):
        return self.layers(x)

def deal(targets, *, clients, bunch=1, seed):
    order = np.random.default_rng(seed).permutation(len(targets) // bunch)
    owners = np.array_split(order, clients)
    return [np.concatenate([np.arange(k * bunch, (k + 1) * bunch) for k in own]) for own in owners]

def fickle(targets, *, clients):
    return deal(targets, clients=clients, seed=None)

def load(samples=120, features=5, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(samples, features))
    return x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)

def owners(targets, *, groups, clients=2):
    return [np.flatnonzero(groups == k) for k in range(clients)]

def twice(targets, *, clients=2, seed):
    return [np.arange(3), np.arange(2, 5)]
def repeated(targets):
    return [np.array([4, 1, 4])]
def outside(targets):
    return [[0, 1], [len(targets)]]
def negative(targets):
    return [[-1, 3]]
def halves(targets):
    return [[0.5, 1.5]]
def nobody(targets):
    return []
def mapping(targets):
    return {0: [1, 2]}

class Unrelated:
    pass
@dataclass
class Loose(Schedule):
    after: int = 1
    def __call__(self, round):
        return 1.0
class Undecorated(Rule):
    power: float = 1.0
    needs = frozenset()
    def answer(self, facts, state):
        return Answer(np.ones(facts.count))
class Changed(Tilted):
    def answer(self, facts, state):
        return Answer(np.ones(facts.count))
@dataclass(frozen=True)
class Unfinished(Rule):
    @property
    def needs(self):
        return frozenset()
@dataclass(frozen=True)
class Needy(Rule):
    power: float
    needs = frozenset({"losses"})
    def answer(self, facts, state):
        return Answer(np.ones(facts.count))
number = 3
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current directory, with a name of its own."""
    name = f"mine_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return name


def own_config(mine: str, **changed: Any) -> Config:
    content = {
        "rounds": 2,
        "data": {"name": f"{mine}:load", "samples": 160, "seed": 3},
        "partition": {"name": f"{mine}:deal", "clients": 4, "bunch": 2},
        "model": {"name": f"{mine}:Net", "hidden": 6},
        "rule": {"name": f"{mine}:Tilted", "power": 2, "lambda": 0.2},
        "server": {"optimizer": f"{mine}:Halved", "schedule": f"{mine}:Late"},
        "local": {"batch_size": 8, "together": "never"},
        "run": {"workers": 0},
    }
    return config_from(content | changed)


def own_run(config: Config, directory: Path) -> list[Any]:
    """What of a run is the same whoever does the work."""
    records = list(adafed.simulate(config, directory=directory))
    return [(record.norm, record.participants, record.evaluations) for record in records]


def test_a_run_of_nothing_but_own_parts(mine: str, tmp_path: Path) -> None:
    """A stopped run is continued by the names in its directory."""
    whole = own_run(own_config(mine), tmp_path / "whole")
    assert [len(participants) for _, participants, _ in whole] == [4, 4]
    assert own_run(own_config(mine, rounds=1), tmp_path / "parts") == whole[:1]
    assert own_run(own_config(mine), tmp_path / "parts") == whole[1:]


@pytest.mark.slow
def test_a_worker_process_finds_own_parts_too(mine: str, tmp_path: Path) -> None:
    here = own_run(own_config(mine), tmp_path / "here")
    assert own_run(own_config(mine, run={"workers": 1}), tmp_path / "there") == here


def test_a_configuration_keeps_its_own_parts(mine: str, tmp_path: Path) -> None:
    config = own_config(mine).completed()
    assert config.rule.options == {"power": 2.0, "lambda": 0.2}
    assert config.server.optimizer.options == {"share": 0.5}
    (tmp_path / "again.toml").write_text(config.to_toml())
    again = load_config(tmp_path / "again.toml")
    assert again == config.changed(name="experiment")
    assert again.completed() == again


def test_an_own_rule_is_equal_by_name_and_options(mine: str) -> None:
    name = f"{mine}:Tilted"
    rule = adafed.rule(name, power=2, **{"lambda": 0.3})
    assert (rule.name, str(rule)) == (name, f"{name}(power=2.0, lambda=0.3)")
    assert rule.options() == options(rule) == {"power": 2.0, "lambda": 0.3}
    assert rule == adafed.rule(rule.name, **rule.options())
    assert rule == sys.modules[mine].Tilted(2.0, 0.3)
    check_rule(rule)
    assert name not in adafed.rules()


def test_one_class_under_two_names(mine: str) -> None:
    """The text that named it is its name, so that a configuration leads back to it; the class itself stays as it is."""
    first, second = adafed.rule(f"{mine}:Tilted"), adafed.rule(f"{mine}:Holder.Tilted")
    assert (first.name, second.name) == (f"{mine}:Tilted", f"{mine}:Holder.Tilted")
    assert second == adafed.rule(second.name, **second.options()) != first
    assert first == adafed.rule(f"{mine}:Tilted")
    assert isinstance(second, type(first))
    assert sys.modules[mine].Tilted().name == f"{mine}:Tilted"
    check_rule(second)


def test_a_registered_class_may_be_named_by_its_place_too() -> None:
    placed = adafed.rule("adafed.server_rules.fedavg:FedAvg", weighted=False)
    assert placed.name == "adafed.server_rules.fedavg:FedAvg"
    assert placed == adafed.rule(placed.name, **placed.options())
    assert adafed.rule("fedavg").name == "fedavg"


def test_a_subclass_with_nothing_but_methods_needs_no_decorator(mine: str) -> None:
    assert adafed.rule(f"{mine}:Changed", power=3).options() == {"power": 3.0, "lambda": 0.1}


@pytest.mark.parametrize(
    ("what", "chosen", "told"),
    [
        ("number", {}, "is int; it must be a frozen dataclass that derives from adafed.server_rules.base.Rule$"),
        ("Unrelated", {}, "is the class Unrelated; it must be a frozen dataclass that derives from adafed.server_rul"),
        ("deal", {}, "is function; it must be a frozen dataclass"),
        ("Halved", {}, "is the class Halved; it must be a frozen dataclass"),
        ("Undecorated", {}, "is no dataclass, so that it has no options; it must be a frozen dataclass"),
        ("Unfinished", {}, "does not define answer; every rule must$"),
        ("Nothing", {}, "has no attribute 'Nothing'"),
        ("Needy", {}, r"^rule\.power is missing; rule\.name = 'mine_\d+:Needy' needs it$"),
        ("Tilted", {"floor": 1}, r"^rule\.floor is unknown; rule\.name = 'mine_\d+:Tilted' has power, lambda$"),
        ("Tilted", {"lambda": "low"}, r"^rule\.lambda is 'low'; it must be a number$"),
    ],
)
def test_rules_that_do_not_fit(mine: str, what: str, chosen: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError, match=told) as caught:
        adafed.rule(f"{mine}:{what}", **chosen)
    assert "\n" not in str(caught.value)


WRONG = """
from dataclasses import dataclass
import numpy as np
from adafed import Rule
from adafed.client_rules.base import ClientRule
from adafed.server.optimizers import ServerOptimizer
from adafed.server.schedules import Schedule
from adafed.server_rules import Answer
from adafed.server_rules.guards import Guard

@dataclass(frozen=True)
class TooMany(Rule):
    @property
    def needs(self):
        return frozenset({"losses"})
    def answer(self, facts, state):
        return Answer(np.ones(facts.count + 1))

class Bare(TooMany):
    def answer(self, facts, state):
        return np.ones(facts.count)

class Raising(TooMany):
    def answer(self, facts, state):
        return 1 / 0

class NotANumber(TooMany):
    def answer(self, facts, state):
        return Answer(np.full(facts.count, np.nan))

class Noted(TooMany):
    def answer(self, facts, state):
        return Answer(np.ones(facts.count), notes={"worst": np.int64(1)})

class Stated(TooMany):
    def answer(self, facts, state):
        return Answer(np.ones(facts.count), {"m": np.ones((3, 30))})

@dataclass(frozen=True)
class Never(Schedule):
    def __call__(self, round):
        return None

@dataclass(frozen=True)
class Half(ServerOptimizer):
    def step(self, parameters, direction, rate, state):
        return parameters[:2], {}

@dataclass(frozen=True)
class Trapped(ServerOptimizer):
    def step(self, parameters, direction, rate, state):
        return state["x"]

class Misspelt(TooMany):
    @property
    def needs(self):
        return frozenset({"lossez"})

@dataclass(frozen=True)
class Judge(Guard):
    def judge(self, facts, needs):
        return 1 / 0

@dataclass(frozen=True)
class Trips(ClientRule):
    def begin(self, visit):
        return 1 / 0

class Silent(Trips):
    def begin(self, visit):
        return None
"""


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"rule": "{}:TooMany"}, r"rule .*:TooMany answered with coefficients of shape \(11,\); it must be \(10,\)"),
        ({"rule": "{}:Bare"}, r"rule .*:Bare answered with a ndarray; it must be an Answer"),
        ({"rule": "{}:Raising"}, r"rule = '.*:Raising' raised ZeroDivisionError\(.*\) in wrong_\d+\.py, line \d+"),
        ({"rule": "{}:NotANumber"}, r"rule .*:NotANumber answered with coefficients \[nan.*; each must be finite"),
        ({"rule": "{}:Misspelt"}, r"needs 'lossez'; it may need accuracies, gram, local_lr, losses, norms, sizes"),
        (
            {"rule": "{}:Noted"},
            r"answered with notes {'worst': np.int64\(1\)}, which JSON cannot hold; it must",
        ),
        ({"rule": "{}:Stated"}, r"rule .*:Stated answered with state {'m': array.*, which JSON cannot hold"),
        ({"server": {"schedule": "{}:Never"}}, r"server.schedule = '.*:Never' returned None; it must be a number"),
        ({"server": {"optimizer": "{}:Half"}}, r"server.optimizer = '.*:Half' did not return what it must: new param"),
        ({"server": {"optimizer": "{}:Trapped"}}, r"server.optimizer = '.*:Trapped' raised KeyError\('x'\)"),
        ({"guards": {"use": ["{}:Judge"]}}, r"guards.use = '.*:Judge' raised ZeroDivisionError"),
        ({"client": {"rules": ["{}:Trips"]}}, r"client.rules = '.*:Trips' raised ZeroDivisionError"),
        (
            {"client": {"rules": ["{}:Silent"]}},
            r"client rule .*:Silent began with a NoneType; begin must return a Begun",
        ),
    ],
    ids=str,
)
def test_own_parts_that_do_wrong_are_told(
    chosen: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"wrong_{abs(hash(told)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(WRONG)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = config_from(
        {
            "rounds": 1,
            "partition": {"name": "iid", "clients": 10},
            "model": {"name": "logistic"},
            "run": {"workers": 0},
            **json.loads(json.dumps(chosen).replace("{}", name)),
        }
    )
    with pytest.raises(AdafedError, match=told) as caught:
        list(adafed.simulate(config))
    assert "\n" not in str(caught.value)


def test_other_kinds_that_do_not_fit(mine: str) -> None:
    with pytest.raises(AdafedError, match=r"^server\.schedule\.name = .* is a dataclass that can change; it must be a"):
        adafed.schedule(f"{mine}:Loose")
    with pytest.raises(AdafedError, match=r"^server\.optimizer\.name = .* is the class Late; it must be a frozen"):
        config_from({"server": {"optimizer": f"{mine}:Late"}})
    with pytest.raises(AdafedError, match=r"^partition\.name = .* is int; it must be a function or a class$"):
        partition(f"{mine}:number", np.zeros(5, int), None, {}, seed=0)


def test_partitions_of_ones_own(mine: str) -> None:
    targets = np.arange(40) % 4
    parts = partition(f"{mine}:deal", targets, None, {"clients": 3, "bunch": 2}, seed=1)
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    assert all((np.diff(part) > 0).all() for part in parts)
    owned = partition(f"{mine}:owners", targets, targets % 2, {}, seed=1)
    assert [part.tolist() for part in owned] == [list(range(0, 40, 2)), list(range(1, 40, 2))]


@pytest.mark.parametrize(
    ("what", "chosen", "told"),
    [
        ("twice", {}, "gave sample 2 twice; a sample must have one owner at most$"),
        ("repeated", {}, "gave sample 4 twice"),
        ("outside", {}, "gave client 1 sample 10; samples go from 0 to 9$"),
        ("negative", {}, "gave client 0 sample -1; samples go from 0 to 9$"),
        ("halves", {}, r"gave client 0 float64 of shape \(2,\); it must be one row of whole numbers$"),
        ("nobody", {}, "returned no client; it must return a list with an array of indices for each client$"),
        ("mapping", {}, "returned dict; it must return a list"),
        ("deal", {}, r"^partition\.clients is missing; partition\.name = 'mine_\d+:deal' needs it$"),
        ("deal", {"clients": 2, "beta": 1}, r"^partition\.beta is unknown; .* has clients, bunch$"),
        ("deal", {"clients": 2, "seed": 1}, r"^partition\.seed = 1 follows from the rest of the configuration"),
    ],
)
def test_partitions_that_do_not_fit(mine: str, what: str, chosen: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        partition(f"{mine}:{what}", np.arange(10) % 2, None, chosen, seed=0)


def test_data_named_in_either_way(mine: str) -> None:
    split = {"mode": "within", "validation": 0.1, "test": 0.2, "stratified": False, "pool": "all"}
    by_name = open_federation({"name": f"{mine}:load", "samples": 400, "classes": 5}, None, split, seed=0)
    by_key = open_federation(
        {"name": "function", "function": f"{mine}:load", "samples": 400, "classes": 5}, None, split, seed=0
    )
    assert by_name.checksum == by_key.checksum
    assert by_name.classes == 5
    with pytest.raises(
        AdafedError, match=r"^data\.size is unknown; data\.name = 'mine_\d+:load' has samples, features"
    ):
        open_federation({"name": f"{mine}:load", "size": 1}, None, split, seed=0)


def test_an_own_optimiser_steps(mine: str) -> None:
    new, _ = adafed.optimizer(f"{mine}:Halved").step(torch.ones(2), torch.ones(2), 1.0, {})
    assert new.tolist() == [0.5, 0.5]


@pytest.mark.slow
def test_a_partition_that_differs_from_process_to_process_is_told(mine: str) -> None:
    fickle = {"name": f"{mine}:fickle", "clients": 4}
    with pytest.raises(AdafedError, match=r"gave other samples to a worker process .* a fixed seed"):
        list(adafed.simulate(own_config(mine, partition=fickle, run={"workers": 1})))
