"""Small files in each published format, made once: every experiment is tried on them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "data"))


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import published

    root = tmp_path_factory.mktemp("data")
    published.cifar(root, "cifar10", train=200, test=20)
    published.cifar(root, "cifar100", train=300, test=100)
    published.fashion(root, train=150, test=50)
    published.femnist(root, writers=8, train=40, test=8)
    published.shakespeare_roles(root)
    published.tinyimagenet(root, classes=4, train=12, test=2)
    published.cinic10(root, each=4)
    published.clothing1m(root, train=14, test=11)
    return root


@pytest.fixture
def data(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place where data is looked for, for this test."""
    monkeypatch.setenv("ADAFED_DATA", str(data_dir))
    return data_dir
