"""What every registered client rule must do: found in the registry, so that a new one is tested unasked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from adafed.client_rules import CLIENT_RULES, ClientRule, Visit, client_rule, client_rules
from adafed.client_rules.base import Begun
from adafed.testing.client_rules import CLIENT_PROPERTIES, check_client_rule, works_in_other_processes
from adafed.training.local import Gradients

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ditto": [{}, {"lambda": 2.0, "lr": 0.01}],
    "fcfc": [{"above": 0.0}, {"above": 0.0, "most": 0.0, "measure": "opportunity"}],
    "fedcorr": [{"iterations": 1, "group": 2, "clean_rounds": 1, "neighbours": 3}],
    "feddyn": [{}, {"alpha": 1.0}],
    "fedprox": [{}, {"mu": 1.0}],
    "mixup": [{}, {"a": 0.2}],
}
CASES = [(name, options) for name in client_rules() for options in OPTIONS.get(name, [{}])]
IDS = ["-".join([name, *(f"{key}={value}" for key, value in options.items())]) for name, options in CASES]


HERE = {told: one for told, one in CLIENT_PROPERTIES.items() if one is not works_in_other_processes}


@pytest.mark.parametrize("property_", HERE.values(), ids=list(HERE))
@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_every_client_rule(name: str, options: dict[str, Any], property_: Callable[[ClientRule], None]) -> None:
    property_(client_rule(name, **options))


@pytest.mark.parametrize("name", client_rules())
def test_every_client_rule_gives_the_same_bits_in_worker_processes(name: str) -> None:
    """With its last options: they go to a worker as the configuration does, whichever they are."""
    works_in_other_processes(client_rule(name, **OPTIONS.get(name, [{}])[-1]))


def test_every_client_rule_has_a_file_and_a_summary() -> None:
    for name in client_rules():
        entry = CLIENT_RULES.entry(name)
        assert entry.summary
        assert entry.__doc__


# Rules that break the contract. They cannot be imported by name, so that they are run in this process alone.


@dataclass(frozen=True)
class Good(ClientRule):
    summary = "shrinks every gradient"
    factor: float = 0.5

    def begin(self, visit: Visit) -> Begun:
        def correct(grads: Gradients, step: int) -> Gradients:
            return [self.factor * grad for grad in grads]

        return Begun(correct=correct)


@dataclass(frozen=True)
class Forgetful(Good):
    keeps = ("memory",)


@dataclass(frozen=True)
class Chatty(Good):
    def end(self, visit: Visit) -> None:
        visit.kept["secret"] = visit.update


SEEN: list[int] = []


@dataclass(frozen=True)
class Mindful(Good):
    """Remembers in a place that is nobody's."""

    def begin(self, visit: Visit) -> Begun:
        SEEN.append(visit.work.client)

        def correct(grads: Gradients, step: int) -> Gradients:
            return [len(SEEN) * grad for grad in grads]

        return Begun(correct=correct)


@dataclass(frozen=True)
class Random(Good):
    def begin(self, visit: Visit) -> Begun:
        def correct(grads: Gradients, step: int) -> Gradients:
            return [grad * torch.rand(()) for grad in grads]

        return Begun(correct=correct)


@dataclass(frozen=True)
class Exploding(Good):
    factor: float = 1e30


@dataclass(frozen=True)
class Nameless(Good):
    summary = ""


@dataclass(frozen=True)
class Misplaced(Good):
    """Keeps what it has in memory and writes something else: a run that goes on finds the wrong thing."""

    keeps = ("own",)

    def begin(self, visit: Visit) -> Begun:
        own = visit.kept.get("own")
        return Begun(pull=0.0 if own is None else float(own.sum()))

    def end(self, visit: Visit) -> None:
        visit.kept["own"] = torch.full((1,), float(len(SEEN)))
        SEEN.append(0)


def test_a_good_rule_passes() -> None:
    check_client_rule(Good)
    check_client_rule(Good(factor=2.0))


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (Forgetful, "keeps and sends what it says"),
        (Chatty, "keeps and sends what it says"),
        (Mindful, "does not depend on the order"),
        (Random, "does not depend on the order|gives the same bits again"),
        (Exploding, "finite input gives finite output"),
        (Nameless, "is described"),
        (Misplaced, "does not depend on the order|gives the same bits again"),
    ],
)
def test_what_breaks_the_contract_is_told(rule: type[ClientRule], told: str) -> None:
    SEEN.clear()
    with pytest.raises(AssertionError, match=told):
        check_client_rule(rule)


@dataclass(frozen=True)
class Silent(Good):
    sends = ("vector",)


@dataclass(frozen=True)
class Short(Silent):
    def end(self, visit: Visit) -> None:
        visit.send["vector"] = torch.zeros(2)


@pytest.mark.parametrize(("rule", "found"), [(Silent, "nothing"), (Short, r"a tensor of shape \(2,\)")])
def test_what_is_said_to_be_sent_and_is_not_is_told(rule: type[ClientRule], found: str) -> None:
    with pytest.raises(AssertionError, match=rf"sends 'vector' and put {found} into visit.send; it must be a vector"):
        check_client_rule(rule)


@dataclass(frozen=True)
class Unnamed(Good):
    def end(self, visit: Visit) -> None:
        visit.send["other"] = visit.update


@dataclass(frozen=True)
class Tensorial(Good):
    def end(self, visit: Visit) -> None:
        visit.tell["norm"] = visit.update.norm()


@dataclass(frozen=True)
class Stacking(Good):
    stacks = True


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (Unnamed, "put 'other' into visit.send; .* named in `sends`"),
        (Tensorial, r"tells \['norm'\]; each must be a number, a string or a list of them"),
        (Stacking, "a rule with stacks = True may only pull"),
    ],
)
def test_more_of_what_a_rule_may_not_do_is_told(rule: type[ClientRule], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_client_rule(rule)
