"""A federation cut out of a data set: reads what a client owns, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adafed.data.base import Dataset, Federation, Normalisation, sha256
from adafed.data.federation import IndexedFederation, federate
from adafed.data.split import ClientIndices
from adafed.errors import AdafedError


def dataset(samples: int = 300, with_test: bool = True) -> Dataset:
    random = np.random.default_rng(0)
    inputs = np.arange(samples, dtype=np.float32)[:, None].repeat(2, axis=1)
    targets = random.integers(0, 5, size=samples)
    groups = np.arange(samples) % 6
    is_test = np.arange(samples) >= samples * 5 // 6 if with_test else None
    return Dataset(
        "toy", inputs, targets, 5, Normalisation(), sha256(inputs, targets), groups, tuple("abcdef"), is_test
    )


def test_clients_get_their_rows() -> None:
    data = dataset()
    parts = [
        ClientIndices(np.array([1, 2]), np.array([3]), np.array([4])),
        ClientIndices(np.array([10]), np.array([], dtype=np.int64), np.array([11, 12])),
    ]
    federation: Federation = IndexedFederation(data, parts)
    assert (federation.name, federation.ids, federation.classes) == ("toy", ("0", "1"), 5)
    assert federation.input_shape == (2,)
    assert federation.train_sizes.tolist() == [2, 1]
    first, second = federation.client(0), federation.client(1)
    assert first.train.inputs[:, 0].tolist() == [1, 2]
    assert first.train.targets.tolist() == data.targets[[1, 2]].tolist()
    assert (len(first.validation), len(first.test), len(second.validation)) == (1, 1, 0)
    assert second.test.inputs.shape == (2, 2)


@pytest.mark.parametrize("mode", ["within", "published"])
@pytest.mark.parametrize(
    ("partition", "options"),
    [("iid", {"clients": 5}), ("dirichlet", {"clients": 5, "beta": 0.3, "minimum": 5}), ("natural", {})],
)
def test_federate_gives_every_sample_one_owner(mode: str, partition: str, options: dict[str, float]) -> None:
    data = dataset()
    federation = federate(data, partition, options, seed=1, mode=mode)
    rows = []
    for index in range(len(federation.ids)):
        client = federation.client(index)
        for split in (client.train, client.validation, client.test):
            assert len(split) > 0
            rows += split.inputs[:, 0].astype(int).tolist()
        if mode == "published":
            assert client.test.inputs[:, 0].min() >= 250
            assert max(client.train.inputs[:, 0].max(), client.validation.inputs[:, 0].max()) < 250
    assert sorted(rows) == list(range(300))


def test_natural_owners_keep_their_names() -> None:
    assert federate(dataset(), "natural", {}, seed=0).ids == tuple("abcdef")


def test_pool_sets_the_test_part_aside() -> None:
    federation = federate(dataset(), "iid", {"clients": 5}, seed=0, pool="train")
    assert sum(len(p.train) + len(p.validation) + len(p.test) for p in federation.parts) == 250


def test_the_split_does_not_change_who_owns_what() -> None:
    def owned(test: float) -> list[list[int]]:
        federation = federate(dataset(), "iid", {"clients": 5}, seed=0, test=test)
        return [sorted([*p.train, *p.validation, *p.test]) for p in federation.parts]

    assert owned(0.1) == owned(0.4)


def test_the_checksum_tells_data_and_owners() -> None:
    first, again, other = (federate(dataset(), "iid", {"clients": 5}, seed=seed) for seed in (0, 0, 1))
    assert first.checksum == again.checksum != other.checksum
    assert len(first.checksum) == 64


def test_a_mapped_data_set_is_read_by_the_row(tmp_path: Path) -> None:
    data = dataset()
    np.save(tmp_path / "inputs.npy", data.inputs)
    mapped = np.load(tmp_path / "inputs.npy", mmap_mode="r")
    lazy = Dataset("toy", mapped, data.targets, 5, Normalisation(), data.checksum)
    inputs = federate(lazy, "iid", {"clients": 5}, seed=0).client(2).train.inputs
    assert type(inputs) is np.ndarray
    assert np.array_equal(inputs, federate(data, "iid", {"clients": 5}, seed=0).client(2).train.inputs)


def test_checksums_see_dtype_shape_and_content_but_not_strides_or_byte_order() -> None:
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert sha256(a) == sha256(np.asfortranarray(a)) == sha256(a.astype(">i4"))
    assert len({sha256(a), sha256(a.reshape(3, 2)), sha256(a.astype(np.int64)), sha256(a + 1), sha256("a")}) == 5
    assert sha256("ab", "c") != sha256("a", "bc")
    assert sha256(np.zeros((0, 3))) != sha256(np.zeros((0, 4)))


def test_refusals() -> None:
    data, none = dataset(), np.array([], dtype=np.int64)
    with pytest.raises(AdafedError, match="at least one client"):
        IndexedFederation(data, [])
    with pytest.raises(AdafedError, match="sample 3 of toy has two owners or roles"):
        IndexedFederation(data, [ClientIndices(np.array([3]), none, np.array([3]))])
    with pytest.raises(AdafedError, match="outside the 300 of toy"):
        IndexedFederation(data, [ClientIndices(np.array([300]), none, none)])
    with pytest.raises(AdafedError, match="as many different ids"):
        IndexedFederation(data, [ClientIndices(np.array([3]), none, none)], ids=["a", "b"])
    with pytest.raises(AdafedError, match=r"split.mode = 'random' is unknown"):
        federate(data, "iid", {"clients": 2}, seed=0, mode="random")
    with pytest.raises(AdafedError, match=r"split.pool = 'some' is unknown"):
        federate(data, "iid", {"clients": 2}, seed=0, pool="some")
    with pytest.raises(AdafedError, match="toy has none"):
        federate(dataset(with_test=False), "iid", {"clients": 2}, seed=0, mode="published")
    with pytest.raises(AdafedError, match=r"seed = 1.5"):
        federate(data, "iid", {"clients": 2}, seed=1.5)  # type: ignore[arg-type]
