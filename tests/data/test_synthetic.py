"""The synthetic federation: the law it follows, and that clients are made on demand."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from adafed.data.base import ClientData, Federation
from adafed.data.synthetic import SyntheticFederation
from adafed.errors import AdafedError


def inputs_of(client: ClientData) -> np.ndarray:
    return np.concatenate([client.train.inputs, client.validation.inputs, client.test.inputs])


def test_it_is_a_federation() -> None:
    federation: Federation = SyntheticFederation(0.5, 1.0, clients=30, seed=4)
    assert federation.name == "synthetic(0.5, 1)"
    assert (len(federation.ids), federation.classes, federation.input_shape) == (30, 10, (60,))
    for index in range(30):
        client = federation.client(index)
        assert len(client.train) == federation.train_sizes[index]
        assert client.train.inputs.dtype == np.float32
        assert min(len(client.validation), len(client.test)) >= 5
        assert 0 <= client.train.targets.min() <= client.train.targets.max() < 10


def test_inputs_have_the_stated_variance() -> None:
    inputs = inputs_of(SyntheticFederation(clients=1, samples=20000).client(0))
    assert inputs.var(axis=0) == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.1)


def test_beta_sets_the_clients_apart() -> None:
    def spread(beta: float) -> float:
        federation = SyntheticFederation(0, beta, clients=40, samples=50)
        return float(np.std([inputs_of(federation.client(k)).mean() for k in range(40)]))

    assert spread(9.0) > 5 * spread(0.0)


def test_iid_clients_share_one_model_and_one_centre() -> None:
    federation = SyntheticFederation(5, 5, clients=3, samples=4000, iid=True)
    for k in range(3):
        assert inputs_of(federation.client(k)).mean(axis=0) == pytest.approx(np.zeros(60), abs=0.1)
    mixes = [np.bincount(federation.client(k).train.targets, minlength=10) / 3200 for k in range(3)]
    assert np.abs(mixes[0] - mixes[1]).max() < 0.05
    assert not np.array_equal(federation.client(0).train.inputs, federation.client(1).train.inputs)


def test_a_client_is_the_same_in_any_order_and_any_number_of_clients() -> None:
    few, many = SyntheticFederation(clients=5, seed=2), SyntheticFederation(clients=50, seed=2)
    assert few.sizes.tolist() == many.sizes[:5].tolist()
    many.client(7)
    for k in (3, 0):
        assert np.array_equal(few.client(k).train.inputs, many.client(k).train.inputs)
        assert np.array_equal(few.client(k).test.targets, many.client(k).test.targets)
    assert not np.array_equal(few.client(0).train.inputs, SyntheticFederation(seed=3).client(0).train.inputs)
    assert np.array_equal(few.client(-1).train.inputs, few.client(4).train.inputs)
    with pytest.raises(IndexError):
        few.client(5)


def test_ten_thousand_clients_take_little_memory() -> None:
    tracemalloc.start()
    federation = SyntheticFederation(clients=10_000, samples=200)
    for index in range(0, 10_000, 500):
        federation.client(index)
    assert federation.train_sizes.sum() == 1_600_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000  # the samples themselves are 480 MB


def test_the_checksum_tells_parameters_and_seed() -> None:
    made = [
        {},
        {"seed": 1},
        {"alpha": 2.0},
        {"beta": 2.0},
        {"clients": 9},
        {"samples": 60},
        {"iid": True},
        {"test": 0.2},
    ]
    checksums = [SyntheticFederation(**options).checksum for options in made]  # type: ignore[arg-type]
    assert len(set(checksums)) == len(made)
    assert SyntheticFederation().checksum == checksums[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, r"data.alpha = -1.0 must be a number of at least 0"),
        ({"beta": float("nan")}, r"data.beta = nan"),
        ({"clients": 0}, r"data.clients = 0 must be a whole number of at least 1"),
        ({"samples": 1}, r"data.samples = 1"),
        ({"features": 0}, r"data.features = 0"),
        ({"classes": 1}, r"data.classes = 1"),
        ({"test": 1.5}, r"split.test = 1.5"),
        ({"seed": -3}, r"seed = -3"),
    ],
)
def test_refusals(options: dict[str, float], message: str) -> None:
    with pytest.raises(AdafedError, match=message):
        SyntheticFederation(**options)  # type: ignore[arg-type]
