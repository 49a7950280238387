"""Who trains when, who is found noisy, and which labels are taken from the global model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from adafed.client_rules.base import Ask, Setting, TellingReply, Tensors
from adafed.client_rules.fedcorr import FedCorr
from adafed.client_rules.fedcorr.plan import Stages
from adafed.config.sections import CohortSection
from adafed.errors import AdafedError
from adafed.rounds.cohort import Cohort, Sampler
from adafed.rounds.round import Ruled, ServerHalf
from adafed.server.optimizers import optimizer
from adafed.server.schedules import schedule
from adafed.server.state import Server, ServerState
from adafed.server_rules import rule

CLIENTS, SAMPLES = 7, 10
NOISY = (1, 4)
WRONG = 4  # of a noisy client's samples, the last ones


class Planned(Stages):
    """The plan, and the server's half that draws cohorts by it."""

    def __init__(self, rounds: int, **options: float) -> None:
        self.rule = FedCorr(**{"iterations": 2, "group": 2, "clean_rounds": 3} | options)  # type: ignore[arg-type]
        super().__init__(self.rule, Setting(CLIENTS, rounds, 5))
        self.sampler = Sampler(CohortSection(count=3), tuple(map(str, range(CLIENTS))), np.full(CLIENTS, SAMPLES), 5)
        server = Server(rule("adafed"), optimizer("sgd"), schedule("constant"), 1.0)
        self.half = ServerHalf(server, client_rules=(Ruled(self.rule, self),))

    def nothing(self) -> Tensors:
        return self.fresh(1)

    def cohort(self, t: int, known: Tensors) -> Cohort:
        state = ServerState(torch.zeros(1), 1, known=self.rule.named(known))
        return self.half.cohort(self.sampler, state, t)

    def labels(self, t: int, client: int, known: Tensors) -> list[int] | None:
        found: list[int] | None = self.orders(t, client, known).get("labels")
        return found


def plan(rounds: int = 40, **options: float) -> Planned:
    return Planned(rounds, **options)


def reply(client: int) -> TellingReply:
    bad = client in NOISY
    losses = [2.0 + 0.01 * k if bad and k >= SAMPLES - WRONG else 1.0 + 0.01 * k for k in range(SAMPLES)]
    return TellingReply(client, {"dimension": (8.0 if bad else 2.0) + 0.1 * client, "losses": losses})


def surely_nine(clients: Sequence[int], known: Mapping[str, torch.Tensor]) -> list[TellingReply]:
    told = {"answers": [9] * SAMPLES, "confidences": [0.9] * SAMPLES, "labels": list(range(SAMPLES))}
    return [TellingReply(client, told) for client in clients]


def after_an_iteration(fedcorr: Planned, ask: Ask = surely_nine) -> Tensors:
    known = fedcorr.nothing()
    for t in range(1, fedcorr.visits + 1):
        replies = [reply(client) for client in fedcorr.cohort(t, known).answering]
        known = fedcorr.learned(t, known, replies, ask)
    return known


def test_the_first_stage_visits_everyone_once_an_iteration_in_an_order_of_its_own() -> None:
    fedcorr = plan()
    assert fedcorr.visits == 4
    orders = []
    for iteration in range(2):
        rounds = range(iteration * 4 + 1, iteration * 4 + 5)
        groups = [fedcorr.cohort(t, fedcorr.nothing()).clients for t in rounds]
        assert [len(group) for group in groups] == [2, 2, 2, 1]
        orders.append([client for group in groups for client in group])
        assert sorted(orders[-1]) == list(range(CLIENTS))
    assert orders[0] != orders[1]
    assert [fedcorr.stage(t) for t in (1, 8, 9, 11, 12, 40)] == [1, 1, 2, 2, 3, 3]


def test_noisy_clients_and_their_share_of_wrong_labels_are_found() -> None:
    known = after_an_iteration(plan())
    assert np.flatnonzero(known["noisy"]).tolist() == list(NOISY)
    assert known["noise"].tolist() == [WRONG / SAMPLES if client in NOISY else 0.0 for client in range(CLIENTS)]
    assert not any(key.startswith("losses.") for key in known)  # they are of this iteration


@pytest.mark.parametrize("lost", [{"dimension": float("nan"), "losses": [float("nan")] * SAMPLES}, {}])
def test_a_client_that_diverged_hides_nobody(lost: dict[str, Any]) -> None:
    fedcorr = plan()
    known = fedcorr.nothing()
    for t in range(1, fedcorr.visits + 1):
        replies = [reply(client) for client in fedcorr.cohort(t, known).answering]
        replies = [TellingReply(0, lost) if one.client == 0 else one for one in replies]
        known = fedcorr.learned(t, known, replies, surely_nine)
    assert known["visits"].tolist() == [0.0] + [1.0] * (CLIENTS - 1)
    assert np.flatnonzero(known["noisy"]).tolist() == list(NOISY)


def test_clients_that_were_missed_are_compared_by_what_they_told() -> None:
    fedcorr = plan()
    known = fedcorr.nothing()
    for t in range(1, fedcorr.first + 1):
        replies = [reply(client) for client in fedcorr.cohort(t, known).answering]
        if t > fedcorr.visits:
            replies = [one for one in replies if one.client in (0, 2)]
        known = fedcorr.learned(t, known, replies, surely_nine)
    assert np.flatnonzero(known["noisy"]).tolist() == list(NOISY)


def test_the_first_stage_waits_for_those_who_join_late() -> None:
    fedcorr = plan()
    fedcorr.sampler.first_round[3] = fedcorr.visits + 1
    first, second = (
        {client for t in rounds for client in fedcorr.cohort(t, fedcorr.nothing()).clients}
        for rounds in (range(1, 5), range(5, 9))
    )
    assert first == set(range(CLIENTS)) - {3}
    assert second == set(range(CLIENTS))


def test_the_largest_losses_are_relabelled_up_to_the_share() -> None:
    fedcorr = plan(relabelled=0.5)
    known = after_an_iteration(fedcorr)
    for client in range(CLIENTS):
        labels = fedcorr.labels(5, client, known)
        if client in NOISY:  # half of the four found wrong, those with the largest losses
            assert labels == [0, 1, 2, 3, 4, 5, 6, 7, 9, 9]
        else:
            assert labels is None


def test_a_global_model_that_is_not_sure_changes_no_label() -> None:
    def unsure(clients: Sequence[int], known: Mapping[str, torch.Tensor]) -> list[TellingReply]:
        asked.extend(clients)
        sure = surely_nine(clients, known)
        return [TellingReply(client, told | {"confidences": [0.5] * SAMPLES}) for client, told in sure]

    asked: list[int] = []
    fedcorr = plan(confidence=0.5)
    known = after_an_iteration(fedcorr, unsure)
    assert asked == list(NOISY)
    assert fedcorr.labels(5, NOISY[0], known) is None


def test_clean_clients_have_the_second_stage_and_noisy_ones_are_relabelled_after_it() -> None:
    fedcorr = plan()
    known = after_an_iteration(fedcorr)
    for t in (9, 10, 11):
        assert not set(fedcorr.cohort(t, known).clients) & set(NOISY)
        assert len(fedcorr.cohort(t, known).clients) == 3
    assert fedcorr.learned(10, known, [], surely_nine) is known
    known = fedcorr.learned(11, known, [], surely_nine)
    assert fedcorr.labels(12, NOISY[0], known) == [9] * SAMPLES
    assert set().union(*(fedcorr.cohort(t, known).clients for t in range(12, 40))) == set(range(CLIENTS))


def test_only_noisy_clients_are_held_back_and_only_in_the_first_stage() -> None:
    fedcorr = plan(beta=5.0)
    known = after_an_iteration(fedcorr)
    assert fedcorr.orders(5, NOISY[0], known)["pull"] == 5.0 * WRONG / SAMPLES
    assert fedcorr.orders(5, 0, known) == {"pull": 0.0, "suspected": True}
    assert fedcorr.orders(9, NOISY[0], known).keys() == {"labels"}
    assert fedcorr.orders(9, 0, known) == {}


def test_if_nobody_is_clean_everybody_trains() -> None:
    fedcorr = plan()
    known = fedcorr.nothing() | {"noise": torch.ones(CLIENTS, dtype=torch.float64)}
    assert fedcorr.cohort(9, known) == fedcorr.sampler.cohort(9)


def test_the_first_stage_averages_and_the_others_have_the_rule() -> None:
    fedcorr, own = plan(), rule("adafed")
    assert fedcorr.server_rule(8, own) == rule("fedavg")
    assert fedcorr.server_rule(9, own) is own
    assert fedcorr.half.rule(8) == rule("fedavg")
    assert fedcorr.half.rule(9) is fedcorr.half.server.rule


def test_the_largest_cohort_is_the_usual_or_a_group_of_the_first_stage() -> None:
    for group, largest in ((2, 3), (5, 5), (50, CLIENTS)):
        fedcorr = plan(rounds=60, group=group)
        assert fedcorr.half.largest(fedcorr.sampler.largest) == largest
        cohorts = (fedcorr.cohort(t, fedcorr.nothing()).clients for t in range(1, 40))
        assert max(map(len, cohorts)) == largest


def test_the_record_tells_stage_and_counts() -> None:
    fedcorr = plan()
    assert fedcorr.notes(1, fedcorr.nothing()) == {"stage": 1, "noisy": 0, "relabelled": 0}
    assert fedcorr.notes(9, after_an_iteration(fedcorr)) == {"stage": 2, "noisy": 2, "relabelled": 2}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"confidences": [0.9]},
        {"confidences": [0.9] * SAMPLES, "answers": [9] * (SAMPLES - 1), "labels": [0] * SAMPLES},
        {"confidences": "much", "answers": [9] * SAMPLES, "labels": [0] * SAMPLES},
        {"confidences": [float("nan")] * SAMPLES, "answers": [9] * SAMPLES, "labels": [0] * SAMPLES},
        {"confidences": 0.9, "answers": 9, "labels": 0},
    ],
)
def test_an_answer_of_no_use_changes_no_label(told: dict[str, object]) -> None:
    """On Flower a node may answer anything."""

    def useless(clients: Sequence[int], known: object) -> list[TellingReply]:
        return [TellingReply(client, told) for client in clients]

    known = after_an_iteration(plan(), useless)
    assert np.flatnonzero(known["noisy"]).tolist() == list(NOISY)
    assert not any(key.startswith("labels.") for key in known)


@pytest.mark.parametrize(
    "told",
    [
        {"dimension": 3.0},
        {"losses": [1.0]},
        {"dimension": "x", "losses": [1.0]},
        {"dimension": 3.0, "losses": [float("inf")]},
        {"dimension": [3.0], "losses": [1.0]},
        {"dimension": 3.0, "losses": []},
        {"dimension": 1e160, "losses": [1.0]},
        {"dimension": 3.0, "losses": [1e200, 0.0]},
    ],
)
def test_a_report_of_no_use_is_passed_over(told: dict[str, object]) -> None:
    stages = plan()
    known = stages.learned(1, stages.fresh(0), [TellingReply(0, told)], lambda *_: [])
    assert known["visits"].sum() == 0


def test_too_few_rounds_are_told() -> None:
    plan(rounds=11)
    with pytest.raises(AdafedError, match=r"rounds = 10 are too few .* take 11; it must be that or more"):
        plan(rounds=10)
