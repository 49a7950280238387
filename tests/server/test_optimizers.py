"""Server optimisers: published numbers, the sign of the step, resuming, and every rule with every one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed import AdafedError

NAMES = pytest.mark.parametrize("name", adafed.optimizers())
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "sgd": [{}, {"momentum": 0.9}],
    "adam": [{}, {"bias_correction": True}, {"initial": 1e-6}],
    "amsgrad": [{}, {"initial": 1e-6}],
}
CASES = [(name, options) for name in adafed.optimizers() for options in OPTIONS.get(name, [{}])]


def steps(optimizer: Any, oracle: dict[str, Any]) -> list[torch.Tensor]:
    """Two rounds: the mean update of the oracle, then a zero one."""
    theta, direction = (torch.tensor(oracle[key], dtype=torch.float64) for key in ("theta", "mean_g"))
    first, state = optimizer.step(theta, direction, oracle["lr"], {})
    second, _ = optimizer.step(first, torch.zeros(3, dtype=torch.float64), oracle["lr"], state)
    return [first, second]


@pytest.mark.parametrize(
    ("name", "round1", "round2"),
    [
        ("adam", "adam_yogi_amsgrad", "adam"),
        ("yogi", "adam_yogi_amsgrad", "yogi_amsgrad"),
        ("amsgrad", "adam_yogi_amsgrad", "yogi_amsgrad"),
        ("adagrad", "adagrad_b1_0", None),
    ],
)
def test_published_numbers(oracles: dict[str, Any], name: str, round1: str, round2: str | None) -> None:
    oracle = oracles["fedopt"]
    first, second = steps(adafed.optimizer(name), oracle)
    np.testing.assert_allclose(first, oracle["round1"][round1], rtol=0, atol=1e-9)
    if round2 is None:
        assert torch.equal(first, second)
    else:
        np.testing.assert_allclose(second, oracle["round2_zero_g"][round2], rtol=0, atol=1e-10)


def test_bias_correction_as_keras_has_it(oracles: dict[str, Any]) -> None:
    first, second = steps(adafed.optimizer("adam", bias_correction=True), oracles["fedopt"])
    # sqrt(1 - b2) / (1 - b1) is 1 for 0.99 and 0.9, so the first round is the plain one.
    np.testing.assert_allclose(first, oracles["fedopt"]["round1"]["adam_yogi_amsgrad"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(second, (0.8480661168, -0.8480661168, 2.1285230995), rtol=0, atol=1e-10)


def test_heavy_ball() -> None:
    optimizer, direction = adafed.optimizer("sgd", momentum=0.5), torch.tensor([1.0, -2.0])
    theta, state = optimizer.step(torch.zeros(2), direction, 0.1, {})
    theta, state = optimizer.step(theta, direction, 0.1, state)
    torch.testing.assert_close(theta, -0.1 * (1 + 1.5) * direction)
    torch.testing.assert_close(state["first"], 1.5 * direction)


def test_easyfl_momentum_pulls_back() -> None:
    optimizer, direction = adafed.optimizer("fedfa-easyfl", momentum=0.5, lr=0.1), torch.tensor([1.0])
    theta, state = optimizer.step(torch.zeros(1), direction, 1.0, {})
    assert theta.item() == pytest.approx(-(1 - 0.1 * 0.5))
    theta, state = optimizer.step(theta, direction, 1.0, state)
    assert theta.item() == pytest.approx(-0.95 - (1 - 0.1 * 0.75))


def test_second_moments_move_as_stated() -> None:
    """Before the first round v is `initial`; Yogi's moves towards d^2 by a share of d^2, whatever v was."""
    direction, zero = torch.tensor([2.0]), torch.zeros(1)
    moved = {name: adafed.optimizer(name, initial=9.0).step(zero, direction, 1.0, {})[1] for name in ("adam", "yogi")}
    assert moved["adam"]["second"].item() == pytest.approx(0.99 * 9 + 0.01 * 4)
    assert moved["yogi"]["second"].item() == pytest.approx(9 - 0.01 * 4)
    _, state = adafed.optimizer("adagrad", initial=9.0).step(zero, direction, 1.0, {})
    assert state["second"].item() == pytest.approx(13.0)
    _, state = adafed.optimizer("amsgrad", initial=9.0).step(zero, direction, 1.0, {})
    assert state["largest"].item() == pytest.approx(9.0)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps_descend(name: str, options: dict[str, Any]) -> None:
    """On ||x||^2 / 2 the direction is x itself: every step against it makes x shorter."""
    optimizer = adafed.optimizer(name, **options)
    state: dict[str, torch.Tensor] = {}
    x = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)
    for _ in range(3):
        stepped, state = optimizer.step(x, x, 0.01, state)
        assert stepped.norm() < x.norm()
        x = stepped


@pytest.mark.parametrize("rule", adafed.rules())
@NAMES
def test_any_rule_goes_with_any_optimiser(rule: str, name: str) -> None:
    """Three clients' quadratics: after some rounds the mean loss is smaller than at the start."""
    centres = torch.tensor([[1.0, 0.0, 0.2], [0.8, 0.4, 0.0], [1.2, 0.3, -0.2]])
    theta, state = torch.full((3,), -2.0), None
    moments: dict[str, torch.Tensor] = {}
    made, optimizer = adafed.rule(rule), adafed.optimizer(name)

    def losses() -> torch.Tensor:
        return 0.5 * (theta - centres).square().sum(dim=1)

    start = losses().mean()
    for round_ in range(1, 6):
        outcome = adafed.aggregate(
            made,
            0.1 * (theta - centres),
            losses=losses(),
            sizes=[1, 2, 3],
            accuracies=[0.5, 0.6, 0.7],
            local_lr=0.1,
            round=round_,
            state=state,
        )
        theta, moments = optimizer.step(theta, outcome.direction, 0.05, moments)
        state = outcome.state
    assert theta.isfinite().all()
    assert losses().mean() < start


@pytest.mark.parametrize(("name", "options"), CASES)
def test_restored_state_continues_with_the_same_bits(name: str, options: dict[str, Any], tmp_path: Any) -> None:
    from safetensors.torch import load_file, save_file

    optimizer = adafed.optimizer(name, **options)
    generator = torch.Generator().manual_seed(0)
    theta = other = torch.randn(7, generator=generator)
    state: dict[str, torch.Tensor] = {}
    restored: dict[str, torch.Tensor] = {}
    for _ in range(4):
        direction = torch.randn(7, generator=generator)
        theta, state = optimizer.step(theta, direction, 0.1, state)
        other, restored = optimizer.step(other, direction, 0.1, restored)
        save_file(restored, tmp_path / "moments.safetensors")
        restored = load_file(tmp_path / "moments.safetensors")
        assert torch.equal(theta, other)


@NAMES
def test_step_changes_nothing_it_was_given(name: str) -> None:
    optimizer, theta, direction = adafed.optimizer(name), torch.ones(3), torch.full((3,), 2.0)
    _, state = optimizer.step(theta, direction, 0.1, {})
    kept = {key: value.clone() for key, value in state.items()}
    optimizer.step(theta, direction, 0.1, state)
    assert theta.tolist() == [1.0] * 3
    assert direction.tolist() == [2.0] * 3
    assert all(torch.equal(state[key], kept[key]) for key in kept)


@NAMES
def test_zero_direction_from_rest_moves_nothing(name: str) -> None:
    stepped, _ = adafed.optimizer(name).step(torch.ones(2), torch.zeros(2), 1.0, {})
    assert stepped.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("lamb", {}, "server.optimizer.name = 'lamb' is unknown; there are adagrad, adam, "),
        ("sgd", {"nesterov": True}, "server.optimizer.nesterov is unknown; server.optimizer.name = 'sgd' has momentum"),
        ("sgd", {"momentum": 1.0}, "server.optimizer.momentum is 1.0; it must be at least 0 and less than 1"),
        ("adam", {"beta1": -0.1}, "server.optimizer.beta1 is -0.1"),
        ("yogi", {"beta2": float("nan")}, "server.optimizer.beta2 is nan"),
        ("adam", {"tau": 0}, "server.optimizer.tau is 0.0; it must be a finite number greater than 0"),
        ("adam", {"bias_correction": 1}, "server.optimizer.bias_correction is 1; it must be true or false"),
    ],
)
def test_mistakes_are_told_in_a_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AdafedError, match=sentence):
        adafed.optimizer(name, **options)


@NAMES
def test_a_direction_or_a_state_of_another_shape_is_told_in_a_sentence(name: str) -> None:
    server = adafed.optimizer(name)
    for direction in (torch.ones(1), torch.ones(3), torch.ones(2, 1)):
        with pytest.raises(AdafedError, match=r"direction has the shape \(.*\); it must be that of the .*, \(2,\)"):
            server.step(torch.zeros(2), direction, 0.1, {})
    for key, moment in server.step(torch.zeros(2), torch.ones(2), 0.1, {})[1].items():
        with pytest.raises(AdafedError, match=rf"state\['{key}'\] has the shape \(4,\); it must be \(2,\)"):
            server.step(torch.zeros(2), torch.ones(2), 0.1, {key: moment.repeat(2)})


def test_adagrads_sum_needs_no_correction() -> None:
    direction = torch.tensor([1.0, -2.0])
    for beta1 in (0.0, 0.9):
        plain, _ = adafed.optimizer("adagrad").step(torch.zeros(2), direction, 1.0, {})
        corrected, _ = adafed.optimizer("adagrad", beta1=beta1, bias_correction=True).step(
            torch.zeros(2), direction, 1.0, {}
        )
        torch.testing.assert_close(corrected, plain)
