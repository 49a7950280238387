"""Human labels on CIFAR."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import published
import pytest

from adafed.data import catalogue, cifar, label_noise
from adafed.data.federation import federate
from adafed.errors import AdafedError


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
@pytest.mark.parametrize(
    ("name", "kind", "key"), [("cifar10", "worse", "worse_label"), ("cifar100", "noisy", "noisy_label")]
)
def test_training_labels_are_replaced_and_test_labels_kept(
    tmp_path: Path, suffix: str, name: str, kind: str, key: str
) -> None:
    made = published.cifar(tmp_path, name)
    columns = published.cifar_n(tmp_path, name, made.targets[:50], suffix)
    noisy = catalogue.load(f"{name}n", tmp_path, kind=kind, verify=False)
    np.testing.assert_array_equal(noisy.targets[:50], columns[key])
    np.testing.assert_array_equal(noisy.targets[50:], made.targets[50:])
    clean = cifar.load(name, tmp_path, verify=False)
    np.testing.assert_array_equal(clean.targets, made.targets)
    assert noisy.checksum != clean.checksum
    assert noisy.name == f"{name}n"


def test_nobody_is_tested_on_wrong_labels(tmp_path: Path) -> None:
    made = published.cifar(tmp_path, "cifar10")
    published.cifar_n(tmp_path, "cifar10", made.targets[:50])
    noisy = catalogue.load("cifar10n", tmp_path, verify=False)
    with pytest.raises(
        AdafedError, match=r"split\.mode = 'within' would test .* labels of cifar10n are wrong there; use 'publ"
    ):
        federate(noisy, "iid", {"clients": 2}, seed=0)
    federation = federate(noisy, "iid", {"clients": 2}, seed=0, mode="published", validation=0.0)
    tested = np.concatenate([federation.client(k).test.targets for k in range(2)])
    assert sorted(tested) == sorted(made.targets[50:])


def test_first_images_take_the_first_labels(tmp_path: Path) -> None:
    made = published.cifar(tmp_path, "cifar100")
    columns = published.cifar_n(tmp_path, "cifar100", np.concatenate([made.targets[:50], np.arange(30)]))
    noisy = catalogue.load("cifar100n", tmp_path, verify=False)
    np.testing.assert_array_equal(noisy.targets[:50], columns["noisy_label"][:50])


def test_labels_in_another_order_are_refused(tmp_path: Path) -> None:
    made = published.cifar(tmp_path)
    published.cifar_n(tmp_path, "cifar10", made.targets[:50][::-1])
    with pytest.raises(AdafedError, match="order"):
        catalogue.load("cifar10n", tmp_path, verify=False)


def test_too_few_labels_are_refused(tmp_path: Path) -> None:
    made = published.cifar(tmp_path)
    published.cifar_n(tmp_path, "cifar10", made.targets[:40])
    with pytest.raises(AdafedError, match="for 50 training images"):
        catalogue.load("cifar10n", tmp_path, verify=False)


def test_published_pickle_is_not_opened_and_the_way_round_is_told(tmp_path: Path) -> None:
    published.cifar(tmp_path)
    (tmp_path / "cifar-n").mkdir()
    (tmp_path / "cifar-n" / "CIFAR-10_human.pt").write_bytes(b"\x80\x02cos\nsystem\n(U\x04truetR.")
    with pytest.raises(AdafedError, match=r"is a pickle.*numpy\.savez"):
        catalogue.load("cifar10n", tmp_path, verify=False)


def test_pickled_columns_are_refused(tmp_path: Path) -> None:
    published.cifar(tmp_path)
    (tmp_path / "cifar-n").mkdir()
    np.savez(tmp_path / "cifar-n" / "cifar10n.npz", clean_label=np.array([{}], dtype=object))
    with pytest.raises(AdafedError, match="truncated or corrupt"):
        catalogue.load("cifar10n", tmp_path, verify=False)


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04 cut", b"\x93NUMPY"])
def test_corrupt_labels_are_one_sentence(tmp_path: Path, raw: bytes) -> None:
    published.cifar(tmp_path)
    (tmp_path / "cifar-n").mkdir()
    (tmp_path / "cifar-n" / "cifar10n.npz").write_bytes(raw)
    with pytest.raises(AdafedError, match="truncated or corrupt"):
        catalogue.load("cifar10n", tmp_path, verify=False)


def test_unknown_kind_and_other_sets_are_refused(tmp_path: Path) -> None:
    made = published.cifar(tmp_path)
    published.cifar_n(tmp_path, "cifar10", made.targets[:50])
    with pytest.raises(AdafedError, match="aggre, worse"):
        catalogue.load("cifar10n", tmp_path, kind="worst", verify=False)
    published.femnist(tmp_path)
    with pytest.raises(AdafedError, match="not for femnist"):
        label_noise.with_human_labels(catalogue.load("femnist", tmp_path), tmp_path, "worse")
