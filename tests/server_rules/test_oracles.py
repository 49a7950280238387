"""Every rule gives the numbers that were computed by hand or by independent code, through the public call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed.algebra.recursion import gram_schmidt_direction

Oracles = dict[str, Any]
PRINTED = 1.5e-9  # for numbers that are known to nine digits only


def close(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=0, atol=tolerance)


@pytest.fixture
def common(oracles: Oracles) -> dict[str, Any]:
    found = oracles["common"]
    return {
        "theta": torch.tensor(found["theta"], dtype=torch.float64),
        "updates": torch.tensor(found["pseudo_gradients_rows"], dtype=torch.float64),
        "facts": {
            "losses": found["loss_before"],
            "sizes": found["n"],
            "accuracies": [0.5, 0.8, 0.7],
            "local_lr": found["local_lr"],
        },
    }


def run(common: dict[str, Any], rule: str, **options: Any) -> adafed.Aggregate:
    return adafed.aggregate(adafed.rule(rule, **options), common["updates"], **common["facts"])


def test_updates_are_old_minus_new(oracles: Oracles) -> None:
    found = oracles["common"]
    close(np.array(found["theta"]) - np.array(found["client_models_rows"]), found["pseudo_gradients_rows"])


@pytest.mark.parametrize(("weighted", "key"), [(True, "theta_n"), (False, "theta_uniform")])
def test_fedavg(common: dict[str, Any], oracles: Oracles, weighted: bool, key: str) -> None:
    close(common["theta"] - run(common, "fedavg", weighted=weighted).direction, oracles["fedavg"][key])


@pytest.mark.parametrize("q", ["0", "1", "2"])
def test_qffl(common: dict[str, Any], oracles: Oracles, q: str) -> None:
    expected = oracles["qfedavg"][q]
    outcome = run(common, "qffl", q=float(q))
    close(common["theta"] - outcome.direction, expected["theta"])
    losses = np.array(common["facts"]["losses"])
    close(outcome.coefficients, 10.0 * losses ** float(q) / sum(expected["h"]))
    assert torch.equal(outcome.direction, run(common, "qffl", q=float(q), lr=0.1).direction)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0.1, (5 / 12, 19 / 60, 4 / 15)), (0.5, (0.75, 0.25, 0.0)), (1.0, (1.0, 0.0, 0.0)), (0.0, (1 / 3, 1 / 3, 1 / 3))],
)
def test_afl(common: dict[str, Any], oracles: Oracles, step: float, expected: tuple[float, ...]) -> None:
    first = run(common, "afl", step=step)
    close(first.coefficients, oracles["afl"]["lambda0"])
    close(common["theta"] - first.direction, oracles["afl"]["theta_local"])
    second = adafed.aggregate(adafed.rule("afl", step=step), common["updates"], **common["facts"], state=first.state)
    close(second.coefficients, expected)
    if step == oracles["afl"]["gamma_lambda"]:
        close(second.coefficients, oracles["afl"]["lambda1"])


@pytest.mark.parametrize("t", ["0.1", "1.0"])
def test_term(common: dict[str, Any], oracles: Oracles, t: str) -> None:
    outcome = run(common, "term", t=float(t))
    close(outcome.coefficients, oracles["term"][t]["w"])
    close(common["theta"] - outcome.direction, oracles["term"][t]["theta"])


def test_term_as_published_code_has_it(common: dict[str, Any]) -> None:
    rule = adafed.rule("term", t=1.0, variant="reference")
    outcome = adafed.aggregate(rule, common["updates"], **common["facts"])
    close(common["theta"] - outcome.direction, (0.906846145, -0.986307710, 2.003284325), PRINTED)
    softmax = run(common, "term", t=1.0)
    factors = []
    for _ in range(40):  # first rounds 2/K, 1.33/K of the softmax step; 1/K in the end
        factors.append(float(outcome.direction.norm() / softmax.direction.norm()))
        outcome = adafed.aggregate(rule, common["updates"], **common["facts"], state=outcome.state)
    close(factors[:2], (2 / 3, 4 / 9))
    close(factors[-1], 1 / 3)


def test_term_with_sample_counts_and_without_tilt(common: dict[str, Any]) -> None:
    close(run(common, "term", t=0.0, weighted=True).coefficients, (0.1, 0.3, 0.6))
    close(run(common, "term", t=0.0).coefficients, np.full(3, 1 / 3))
    told = common["facts"] | {"losses": [1.7e308, 1.0, -1.7e308]}  # whose difference is no number
    close(run(common | {"facts": told}, "term", t=0.0).coefficients, np.full(3, 1 / 3))


@pytest.mark.parametrize("case", range(4))
def test_fedmgda(common: dict[str, Any], oracles: Oracles, case: int) -> None:
    expected = oracles["fedmgda+"][case]
    prior = {"uniform": "uniform", "n": "size"}[expected["prior"]]
    outcome = run(common, "fedmgda+", epsilon=expected["eps"], prior=prior)
    close(outcome.diagnostics.notes["weights"], expected["lam"])
    close(outcome.direction, expected["d"])
    close(common["theta"] - outcome.direction, expected["theta_eta1"])


def after_unequal_participation(rule: adafed.Rule) -> adafed.RuleState:
    """Clients 0, 1, 2 have taken part 0, 1, 2 times; the next round makes it 1, 2, 3."""
    state = None
    for cohort in ([1, 2], [2]):
        updates = torch.eye(3, dtype=torch.float64)[cohort]
        state = adafed.aggregate(rule, updates, accuracies=[0.5] * len(cohort), clients=cohort, state=state).state
    assert state is not None
    return state


def test_fedfa(common: dict[str, Any], oracles: Oracles) -> None:
    expected = oracles["fedfa"]
    rule = adafed.rule("fedfa", alpha=expected["alpha"], beta=expected["beta"])
    state = after_unequal_participation(rule)
    outcome = adafed.aggregate(rule, common["updates"], accuracies=expected["acc"], state=state)
    assert outcome.state.numbers["counts"] == {"0": 1, "1": 2, "2": 3}
    close(outcome.coefficients, expected["weights_no_eps"])
    close(common["theta"] - outcome.direction, expected["agg"])


def test_fedfa_as_easyfl_has_it(common: dict[str, Any], oracles: Oracles) -> None:
    rule = adafed.rule("fedfa", variant="easyfl")
    state = after_unequal_participation(rule)
    outcome = adafed.aggregate(rule, common["updates"], accuracies=oracles["fedfa"]["acc"], state=state)
    close(outcome.coefficients, (0.277926378, 0.294930910, 0.427142712), PRINTED)
    close(common["theta"] - outcome.direction, (0.901700453, -0.896599094, 2.055935451), PRINTED)
    optimizer = adafed.optimizer("fedfa-easyfl", lr=0.1)
    stepped, _ = optimizer.step(common["theta"], outcome.direction, 1.0, {})
    close(stepped, (0.906615431, -0.901769139, 2.053138679), PRINTED)


def test_fedfa_as_fedlf_has_it(common: dict[str, Any], oracles: Oracles) -> None:
    accuracies, counts = np.array(oracles["fedfa"]["acc"]), np.array(oracles["fedfa"]["freq"])
    rule = adafed.rule("fedfa", variant="fedlf", alpha=0.25, beta=0.75)
    outcome = adafed.aggregate(rule, common["updates"], accuracies=accuracies, state=after_unequal_participation(rule))
    information, frequency = -np.log2(accuracies / accuracies.sum()), -np.log2(1 - counts / counts.sum())
    close(outcome.coefficients, 0.25 * accuracies / information.sum() + 0.75 * counts / frequency.sum())


@pytest.mark.parametrize("gamma", ["0", "1"])
def test_adafed(common: dict[str, Any], oracles: Oracles, gamma: str) -> None:
    expected = oracles["adafed"][gamma]
    outcome = run(common, "adafed", preset="paper", gamma=float(gamma))
    close(outcome.coefficients, expected["lambda_raw"])
    close(outcome.direction, expected["d"])
    close(outcome.diagnostics.norm**2, expected["norm2"])
    close(outcome.diagnostics.rates, expected["g_dot_d"])
    assert outcome.diagnostics.negative == int((np.array(expected["lambda_raw"]) < 0).sum())
    simplex = run(common, "adafed", scale="paper", hull="simplex", gamma=float(gamma))
    close(simplex.direction, expected["simplex_d"])
    close(simplex.coefficients * np.array(expected["w"]), expected["simplex_weights_on_g_over_w"])


@pytest.mark.parametrize("gamma", ["0", "1"])
def test_adafed_on_three_clients_in_four_dimensions(oracles: Oracles, gamma: str) -> None:
    expected = oracles["adafed_4x3"][gamma]
    updates = torch.tensor(expected["G_columns"], dtype=torch.float64)
    rule = adafed.rule("adafed", preset="paper", gamma=float(gamma))
    outcome = adafed.aggregate(rule, updates, losses=expected["losses"])
    close(outcome.coefficients, expected["lambda_raw"])
    close(outcome.direction, expected["d"])
    close(outcome.diagnostics.norm**2, expected["norm2"])
    close(outcome.diagnostics.rates, np.array(expected["w"]) * expected["norm2"])
    close(gram_schmidt_direction(updates, expected["losses"], float(gamma)), expected["d"])
    orthogonal = np.array(expected["gs_tilde_rows"])  # the paper's own route: equations (5), (6) and (12)
    close(orthogonal @ orthogonal.T - np.diag((orthogonal**2).sum(axis=1)), np.zeros((3, 3)))
    close(np.array(expected["gs_lambda"]) @ orthogonal, outcome.direction)


@pytest.mark.parametrize("case", range(3))
def test_adafed_by_hand(oracles: Oracles, case: int) -> None:
    expected = oracles["adafed_hand"][case]
    updates = torch.tensor(expected["G_columns"], dtype=torch.float64)
    outcome = adafed.aggregate(adafed.rule("adafed", preset="paper", gamma=1.0), updates, losses=expected["w"])
    close(outcome.direction, expected["d"])
    if "lambda_raw" in expected:
        close(outcome.coefficients, expected["lambda_raw"])
    if "norm2" in expected:
        close(outcome.diagnostics.norm**2, expected["norm2"])
    if "simplex_d" in expected:
        rule = adafed.rule("adafed", scale="paper", hull="simplex", gamma=1.0)
        close(adafed.aggregate(rule, updates, losses=expected["w"]).direction, expected["simplex_d"])


@pytest.mark.parametrize("case", range(3))
def test_fedfv(oracles: Oracles, case: int) -> None:
    expected = oracles["fedfv"][case]
    updates = torch.tensor(expected["rows"], dtype=torch.float64)
    outcome = adafed.aggregate(adafed.rule("fedfv", alpha=expected["alpha"]), updates, losses=expected["losses"])
    close(outcome.direction, expected["d"], PRINTED)
    close(outcome.diagnostics.norm, outcome.diagnostics.mean_norm)


def test_gifair(common: dict[str, Any], oracles: Oracles) -> None:
    close(run(common, "gifair", c=oracles["gifair"]["c"]).coefficients, oracles["gifair"]["weights"])


def test_fcfc(common: dict[str, Any]) -> None:
    losses = np.array(common["facts"]["losses"])
    rule = adafed.rule("fcfc", delta=2.0, decay=0.5, smallest=0.4, pareto_from=5)
    for round_, delta in [(1, 2.0), (2, 1.0), (3, 0.5), (4, 0.4)]:
        outcome = adafed.aggregate(rule, common["updates"], losses=losses, round=round_)
        close(outcome.coefficients, np.exp(losses / delta) / np.exp(losses / delta).sum())
    pareto = adafed.aggregate(rule, common["updates"], losses=losses, round=5)
    close(pareto.direction, run(common, "adafed", gamma=0.0, scale="mean", hull="simplex").direction)
