"""Every data set by name: found, fetched, unpacked, loaded."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import published
import pytest

from adafed.data import catalogue
from adafed.data.download import Remote
from adafed.errors import AdafedError

WRITERS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "cifar10": (published.cifar, {"verify": False}),
    "cifar100": (partial(published.cifar, name="cifar100"), {"verify": False}),
    "cinic10": (published.cinic10, {}),
    "clothing1m": (published.clothing1m, {"size": 8}),
    "fashion": (published.fashion, {"verify": False}),
    "femnist": (published.femnist, {}),
    "shakespeare": (published.shakespeare_roles, {}),
    "tinyimagenet": (published.tinyimagenet, {}),
}


def test_every_set_is_listed() -> None:
    assert set(catalogue.names()) == {*WRITERS, "cifar10n", "cifar100n"}


@pytest.mark.parametrize("name", WRITERS)
def test_absent_then_present(tmp_path: Path, name: str) -> None:
    write, options = WRITERS[name]
    assert not catalogue.available(name, tmp_path)
    with pytest.raises(AdafedError, match="is not in") as caught:
        catalogue.load(name, tmp_path, **options)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    write(tmp_path)
    assert catalogue.available(name, tmp_path)
    dataset = catalogue.load(name, tmp_path, **options)
    assert dataset.name == name
    assert len(dataset) == len(dataset.inputs) == len(dataset.targets)
    assert dataset.normalisation(dataset.inputs[:2]).shape == dataset.inputs[:2].shape
    if dataset.inputs.ndim == 4:
        assert len(dataset.normalisation.mean) == len(dataset.normalisation.std) == dataset.inputs.shape[1]


def test_environment_names_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.femnist(tmp_path)
    monkeypatch.setenv("ADAFED_DATA", str(tmp_path))
    assert catalogue.available("femnist")
    assert len(catalogue.load("femnist")) == 55


def test_unknown_names_and_options_are_told_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"data\.name = 'mnist' is unknown; there are cifar10"):
        catalogue.load("mnist", tmp_path)
    with pytest.raises(AdafedError, match=r"data\.colour is unknown; data\.name = 'cifar10' has version, verify"):
        catalogue.load("cifar10", tmp_path, colour=True)
    with pytest.raises(AdafedError, match=r"data\.colour is unknown; data\.name = 'femnist' has no options"):
        catalogue.load("femnist", tmp_path, colour=True)


def _archive(root: Path, folder: str, name: str) -> Path:
    path = root / name
    if name.endswith(".zip"):
        shutil.make_archive(str(path.with_suffix("")), "zip", root, folder)
    else:
        with tarfile.open(path, "w:gz") as tar:
            tar.add(root / folder, arcname=folder)
    shutil.rmtree(root / folder)
    return path


def test_archive_is_unpacked_where_it_lies(tmp_path: Path) -> None:
    made = published.cifar(tmp_path, version="python")
    _archive(tmp_path, "cifar-10-batches-py", "cifar-10-python.tar.gz")
    assert catalogue.available("cifar10", tmp_path)
    with pytest.raises(AdafedError, match="not the published file"):
        catalogue.load("cifar10", tmp_path)
    np.testing.assert_array_equal(catalogue.load("cifar10", tmp_path, verify=False).inputs, made.inputs)


def test_version_asked_for_is_unpacked_beside_the_other(tmp_path: Path) -> None:
    published.cifar(tmp_path, version="python")
    _archive(tmp_path, "cifar-10-batches-py", "cifar-10-python.tar.gz")
    published.cifar(tmp_path, version="binary")
    catalogue.load("cifar10", tmp_path, verify=False)
    assert not (tmp_path / "cifar-10-batches-py").exists()
    catalogue.load("cifar10", tmp_path, verify=False, version="python")
    assert (tmp_path / "cifar-10-batches-py").exists()


@pytest.mark.parametrize("cut", [60, 2000])
def test_truncated_archive_is_one_sentence(tmp_path: Path, cut: int) -> None:
    published.cifar(tmp_path)
    archive = _archive(tmp_path, "cifar-10-batches-bin", "cifar-10-binary.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-cut])
    with pytest.raises(AdafedError, match="cannot be unpacked"):
        catalogue.load("cifar10", tmp_path, verify=False)
    assert not (tmp_path / "cifar-10-batches-bin").exists()


def test_labels_and_images_are_both_needed(tmp_path: Path) -> None:
    made = published.cifar(tmp_path / "images")
    assert not catalogue.available("cifar10n", tmp_path / "images")
    with pytest.raises(AdafedError, match="CIFAR-10N is not in"):
        catalogue.load("cifar10n", tmp_path / "images", download=True)
    published.cifar_n(tmp_path / "labels", "cifar10", made.targets[:50])
    assert not catalogue.available("cifar10n", tmp_path / "labels")
    with pytest.raises(AdafedError, match="CIFAR-10 is not in"):
        catalogue.load("cifar10n", tmp_path / "labels")


def test_archive_without_a_top_folder(tmp_path: Path) -> None:
    """CINIC-10's holds train, valid and test bare."""
    made = published.cinic10(tmp_path)
    with tarfile.open(tmp_path / "CINIC-10.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "CINIC-10", arcname=".")
    shutil.rmtree(tmp_path / "CINIC-10")
    archive = tmp_path / "CINIC-10.tar.gz"
    with _entry_for(archive, "cinic10", "http://127.0.0.1:1/CINIC-10.tar.gz"):
        np.testing.assert_array_equal(catalogue.load("cinic10", tmp_path).inputs, made.inputs)


class _entry_for:
    """The catalogue with this archive in the place of the published one."""

    def __init__(self, archive: Path, name: str, url: str) -> None:
        raw = archive.read_bytes()
        remote = Remote(url, hashlib.md5(raw).hexdigest(), len(raw))
        self.name, self.before = name, catalogue._ENTRIES[name]
        folder = self.before.archives[0][1]
        self.entry = replace(self.before, remotes=(remote,), archives=((remote, folder),))

    def __enter__(self) -> None:
        catalogue._ENTRIES[self.name] = self.entry

    def __exit__(self, *_: object) -> None:
        catalogue._ENTRIES[self.name] = self.before


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_download_fetches_unpacks_and_loads_once_allowed(tmp_path: Path) -> None:
    site, root = tmp_path / "site", tmp_path / "root"
    site.mkdir()
    made = published.tinyimagenet(site)
    archive = _archive(site, "tiny-imagenet-200", "tiny-imagenet-200.zip")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/{archive.name}"
        try:
            with _entry_for(archive, "tinyimagenet", url):
                with pytest.raises(AdafedError, match="allow the download"):
                    catalogue.load("tinyimagenet", root)
                dataset = catalogue.load("tinyimagenet", root, download=True)
        finally:
            server.shutdown()
            thread.join()
    np.testing.assert_array_equal(dataset.inputs, made.inputs)
    assert len(catalogue.load("tinyimagenet", root)) == len(dataset)


def test_sets_their_publishers_do_not_offer_as_files_stay_missing(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="is not in"):
        catalogue.load("clothing1m", tmp_path, download=True)
