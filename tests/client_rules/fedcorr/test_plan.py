"""Who trains when, who is found noisy, and which labels are taken from the global model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from adafed.client_rules.fedcorr import FedCorr
from adafed.client_rules.fedcorr.correction import Known
from adafed.config.sections import CohortSection, FedCorrSection
from adafed.errors import AdafedError
from adafed.rounds.cohort import Sampler
from adafed.server_rules import rule
from adafed.training.local import Predicted, Report, Suspicion

CLIENTS, SAMPLES = 7, 10
NOISY = (1, 4)
WRONG = 4  # of a noisy client's samples, the last ones


def plan(rounds: int = 40, **options: float) -> FedCorr:
    section = FedCorrSection.model_validate({"iterations": 2, "group": 2, "clean_rounds": 3} | options)
    sampler = Sampler(CohortSection(count=3), tuple(map(str, range(CLIENTS))), np.full(CLIENTS, SAMPLES), 5)
    return FedCorr(section, sampler, CLIENTS, rounds, 5)


def report(client: int) -> Report:
    bad = client in NOISY
    losses = [2.0 + 0.01 * k if bad and k >= SAMPLES - WRONG else 1.0 + 0.01 * k for k in range(SAMPLES)]
    return Report(client, SAMPLES, 1, 1.0, None, None, Suspicion((8.0 if bad else 2.0) + 0.1 * client, losses))


def surely_nine(clients: Sequence[int], known: Known) -> list[Predicted]:
    return [Predicted(client, [9] * SAMPLES, [0.9] * SAMPLES, list(range(SAMPLES))) for client in clients]


def after_an_iteration(fedcorr: FedCorr, predict: object = surely_nine) -> Known:
    known = fedcorr.fresh()
    for t in range(1, fedcorr.visits + 1):
        reports = [report(client) for client in fedcorr.cohort(t, known).answering]
        known = fedcorr.learned(t, known, reports, predict)  # type: ignore[arg-type]
    return known


def test_the_first_stage_visits_everyone_once_an_iteration_in_an_order_of_its_own() -> None:
    fedcorr = plan()
    assert fedcorr.visits == 4
    orders = []
    for iteration in range(2):
        rounds = range(iteration * 4 + 1, iteration * 4 + 5)
        groups = [fedcorr.cohort(t, fedcorr.fresh()).clients for t in rounds]
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


def test_a_client_that_diverged_hides_nobody() -> None:
    fedcorr = plan()
    known = fedcorr.fresh()
    for t in range(1, fedcorr.visits + 1):
        reports = [report(client) for client in fedcorr.cohort(t, known).answering]
        lost = Suspicion(float("nan"), [float("nan")] * SAMPLES)
        reports = [one._replace(suspicion=lost) if one.client == 0 else one for one in reports]
        known = fedcorr.learned(t, known, reports, surely_nine)
    assert np.flatnonzero(known["noisy"]).tolist() == list(NOISY)


def test_clients_that_were_missed_are_compared_by_what_they_told() -> None:
    fedcorr = plan()
    known = fedcorr.fresh()
    for t in range(1, fedcorr.first + 1):
        reports = [report(client) for client in fedcorr.cohort(t, known).answering]
        if t > fedcorr.visits:
            reports = [one for one in reports if one.client in (0, 2)]
        known = fedcorr.learned(t, known, reports, surely_nine)
    assert np.flatnonzero(known["noisy"]).tolist() == list(NOISY)


def test_the_first_stage_waits_for_those_who_join_late() -> None:
    fedcorr = plan()
    fedcorr.sampler.first_round[3] = fedcorr.visits + 1
    first, second = (
        {client for t in rounds for client in fedcorr.cohort(t, fedcorr.fresh()).clients}
        for rounds in (range(1, 5), range(5, 9))
    )
    assert first == set(range(CLIENTS)) - {3}
    assert second == set(range(CLIENTS))


def test_the_largest_losses_are_relabelled_up_to_the_share() -> None:
    fedcorr = plan(relabelled=0.5)
    known = after_an_iteration(fedcorr)
    for client in range(CLIENTS):
        labels = fedcorr.labels(client, known)
        if client in NOISY:  # half of the four found wrong, those with the largest losses
            assert labels == (0, 1, 2, 3, 4, 5, 6, 7, 9, 9)
        else:
            assert labels is None


def test_a_global_model_that_is_not_sure_changes_no_label() -> None:
    def unsure(clients: Sequence[int], known: Known) -> list[Predicted]:
        return [one._replace(confidences=[0.5] * SAMPLES) for one in surely_nine(clients, known)]

    fedcorr = plan(confidence=0.5)
    known = after_an_iteration(fedcorr, unsure)
    assert fedcorr.labels(NOISY[0], known) is None


def test_clean_clients_have_the_second_stage_and_noisy_ones_are_relabelled_after_it() -> None:
    fedcorr = plan()
    known = after_an_iteration(fedcorr)
    for t in (9, 10, 11):
        assert not set(fedcorr.cohort(t, known).clients) & set(NOISY)
        assert len(fedcorr.cohort(t, known).clients) == 3
    assert fedcorr.learned(10, known, [], surely_nine) is known
    known = fedcorr.learned(11, known, [], surely_nine)
    assert fedcorr.labels(NOISY[0], known) == (9,) * SAMPLES
    assert set().union(*(fedcorr.cohort(t, known).clients for t in range(12, 40))) == set(range(CLIENTS))


def test_only_noisy_clients_are_held_back_and_only_in_the_first_stage() -> None:
    fedcorr = plan(beta=5.0)
    known = after_an_iteration(fedcorr)
    assert fedcorr.pull(5, NOISY[0], known) == 5.0 * WRONG / SAMPLES
    assert fedcorr.pull(5, 0, known) == 0.0
    assert fedcorr.pull(9, NOISY[0], known) == 0.0


def test_if_nobody_is_clean_everybody_trains() -> None:
    fedcorr = plan()
    known = fedcorr.fresh() | {"noise": torch.ones(CLIENTS, dtype=torch.float64)}
    assert fedcorr.cohort(9, known) == fedcorr.sampler.cohort(9)


def test_the_first_stage_averages_and_the_others_have_the_rule() -> None:
    fedcorr, own = plan(), rule("adafed")
    assert fedcorr.rule(8, own) is fedcorr.average
    assert fedcorr.rule(9, own) is own


def test_too_few_rounds_are_told() -> None:
    plan(rounds=11)
    with pytest.raises(AdafedError, match=r"rounds = 10 are too few .* take 11; it must be that or more"):
        plan(rounds=10)
