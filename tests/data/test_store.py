"""The cache: the second load reads no source, changed sources are read again, and nothing half-written is ever used."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adafed.data import store
from adafed.data.base import Dataset, Normalisation
from adafed.errors import AdafedError

RECIPE = store.Recipe("toy", 3, Normalisation())
OLD = 1_000_000_000_000_000_000  # nanoseconds; long enough ago that the file's clock can be trusted


class Toy:
    """One source whose bytes are the samples; counts how often it is read."""

    def __init__(self, root: Path) -> None:
        self.root, self.source, self.reads = root, root / "toy.bin", 0
        self.write(bytes(range(12)))

    def write(self, raw: bytes, when: int = OLD) -> None:
        self.source.write_bytes(raw)
        os.utime(self.source, ns=(when, when))

    def build(self, draft: store.Draft) -> None:
        self.reads += 1
        raw = np.frombuffer(self.source.read_bytes(), np.uint8)
        for start in range(0, len(raw), 5):
            block = raw[start : start + 5]
            draft.append(block.reshape(-1, 1, 1, 1), block % 3, block // 4, is_test=block > 8)
        draft.group_names = ("a", "b", "c")

    def load(self, build: Callable[[store.Draft], None] | None = None, **options: object) -> Dataset:
        return store.cached(RECIPE, self.root, [self.source], build or self.build, options=options)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def test_arrays_come_back_whole_from_many_blocks(toy: Toy) -> None:
    dataset = toy.load()
    expected = np.arange(12)
    np.testing.assert_array_equal(dataset.inputs[:, 0, 0, 0], expected)
    np.testing.assert_array_equal(dataset.targets, expected % 3)
    np.testing.assert_array_equal(dataset.groups, expected // 4)
    np.testing.assert_array_equal(dataset.is_test, expected > 8)
    assert dataset.group_names == ("a", "b", "c")
    assert (dataset.inputs.dtype, dataset.targets.dtype) == (np.uint8, np.int64)


def test_second_load_maps_the_cache_and_reads_nothing(toy: Toy) -> None:
    first, second = toy.load(), toy.load()
    assert toy.reads == 1
    assert isinstance(second.inputs, np.memmap)
    assert first.checksum == second.checksum
    np.testing.assert_array_equal(first.inputs, second.inputs)


def test_unchanged_source_is_not_even_opened(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.load()
    monkeypatch.setattr(store.hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    toy.load()


def test_changed_source_is_read_again(toy: Toy) -> None:
    first = toy.load()
    toy.write(bytes(range(1, 13)), when=OLD + 1)
    second = toy.load()
    assert toy.reads == 2
    assert second.checksum != first.checksum
    assert second.inputs[0, 0, 0, 0] == 1


def test_fresh_source_is_hashed_every_time(toy: Toy) -> None:
    """Two writes within the clock's grain look alike from outside."""
    now = toy.source.stat().st_mtime_ns
    toy.source.write_bytes(bytes(range(12)))
    facts = toy.source.stat()
    toy.load()
    toy.source.write_bytes(bytes(range(1, 13)))
    os.utime(toy.source, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
    assert facts.st_mtime_ns > now
    assert toy.load().inputs[0, 0, 0, 0] == 1


def test_touched_source_with_the_same_bytes_keeps_its_entry(toy: Toy) -> None:
    toy.load()
    toy.write(bytes(range(12)), when=OLD + 5)
    toy.load()
    assert toy.reads == 1


def test_options_have_entries_of_their_own(toy: Toy) -> None:
    toy.load(size=1)
    toy.load(size=2)
    assert toy.reads == 2


def test_checksum_depends_on_content_and_not_on_blocks(toy: Toy, tmp_path: Path) -> None:
    def at_once(draft: store.Draft) -> None:
        raw = np.frombuffer(toy.source.read_bytes(), np.uint8)
        draft.append(raw.reshape(-1, 1, 1, 1), raw % 3, raw // 4, is_test=raw > 8)
        draft.group_names = ("a", "b", "c")

    assert toy.load(at_once, other=True).checksum == toy.load().checksum


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, AdafedError("bad file"), MemoryError])
def test_interrupted_load_leaves_no_entry(toy: Toy, interruption: BaseException | type[BaseException]) -> None:
    def broken(draft: store.Draft) -> None:
        toy.build(draft)
        raise interruption

    with pytest.raises((KeyboardInterrupt, AdafedError, MemoryError)):
        toy.load(broken)
    assert [path.name for path in (toy.root / ".cache").iterdir()] == ["toy.sources.json"]
    assert len(toy.load()) == 12


def test_what_a_killed_load_left_is_ignored_and_later_removed(toy: Toy) -> None:
    scratch = toy.root / ".cache" / ".writing-killed"
    scratch.mkdir(parents=True)
    (scratch / "inputs.npy").write_bytes(b"half")
    assert len(toy.load()) == 12
    assert scratch.exists()
    os.utime(scratch, ns=(OLD, OLD))
    toy.load(other=True)
    assert not scratch.exists()


def test_what_goes_while_it_is_swept_is_no_error(toy: Toy) -> None:
    """Another data set's load ends between the listing and the look at what was listed."""
    (toy.root / ".cache").mkdir()
    (toy.root / ".cache" / ".writing-gone").symlink_to("nowhere")  # listed, and not there
    assert len(toy.load()) == 12


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_an_entry_is_for_whom_the_umask_lets_read(toy: Toy, mask: int) -> None:
    before = os.umask(mask)
    try:
        toy.load()
    finally:
        os.umask(before)
    made = list((toy.root / ".cache").rglob("*"))
    assert {path.name for path in made} >= {"toy.sources.json", "inputs.npy", "meta.json"}
    for path in made:
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~mask


@pytest.mark.parametrize("fresh", [False, True])
def test_a_whole_entry_needs_no_place_to_write(toy: Toy, monkeypatch: pytest.MonkeyPatch, fresh: bool) -> None:
    """Data on a read-only disk for a user who has no home: with hashes that are remembered and with none."""
    toy.load()
    if fresh:
        (toy.root / ".cache" / "toy.sources.json").unlink()
    there = set((toy.root / ".cache").rglob("*"))

    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(store.tempfile, "TemporaryFile", refused)
    assert len(toy.load()) == 12
    assert toy.reads == 1
    assert set((toy.root / ".cache").rglob("*")) == there
    with pytest.raises(AdafedError, match=r"Neither .* nor .* can be written; give a data_dir that can"):
        toy.load(size=2)


def test_hashes_that_cannot_be_remembered_are_found_again(toy: Toy) -> None:
    (toy.root / ".cache" / "toy.sources.json").mkdir(parents=True)  # where no file can take its place
    assert len(toy.load()) == len(toy.load()) == 12
    assert toy.reads == 1


@pytest.mark.parametrize("damaged", [False, True])
def test_a_load_beside_another_waits_for_its_entry(toy: Toy, damaged: bool) -> None:
    """As `--jobs 2` on a new machine does: two that fill at once removed each other's entry and found none."""
    if damaged:
        toy.load()
        (meta,) = (toy.root / ".cache").glob("toy-*/meta.json")
        meta.unlink()
        toy.reads = 0
    found: list[Dataset] = []
    other = threading.Thread(target=lambda: found.append(toy.load()))

    def build(draft: store.Draft) -> None:
        other.start()
        other.join(0.2)  # long enough to make an entry, if it did not wait
        toy.build(draft)

    mine = toy.load(build)
    other.join()
    assert toy.reads == 1
    assert found[0].checksum == mine.checksum
    np.testing.assert_array_equal(found[0].inputs, mine.inputs)


@pytest.mark.parametrize("damage", ["inputs.npy", "targets.npy", "meta.json"])
def test_damaged_entry_is_made_again(toy: Toy, damage: str) -> None:
    toy.load()
    (file,) = (toy.root / ".cache").glob(f"toy-*/{damage}")
    file.write_bytes(file.read_bytes()[:-4])
    assert len(toy.load()) == 12
    assert toy.reads == 2


def test_writing_into_the_arrays_does_not_reach_the_disk(toy: Toy) -> None:
    toy.load().inputs[:] = 99
    assert toy.load().inputs.max() == 11


def test_read_only_data_are_cached_at_home(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy.root / ".cache").write_text("a file, where no folder can be made")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert len(toy.load()) == 12
    assert list((tmp_path / "home" / ".cache" / "adafed" / ".cache").glob("toy-*"))


def test_bad_labels_and_empty_sets_are_refused(toy: Toy) -> None:
    one = np.zeros((1, 1, 1, 1), np.uint8)
    with pytest.raises(AdafedError, match="label 3, outside its 3 classes 0 to 2"):
        toy.load(lambda draft: draft.append(one, np.array([3])))
    with pytest.raises(AdafedError, match="no samples"):
        toy.load(lambda draft: None)


def test_samples_of_two_shapes_are_refused(toy: Toy) -> None:
    def build(draft: store.Draft) -> None:
        draft.append(np.zeros((1, 2), np.uint8), np.array([0]))
        draft.append(np.zeros((1, 3), np.uint8), np.array([0]))

    with pytest.raises(AdafedError, match="shape"):
        toy.load(build)


def test_data_root_prefers_the_argument_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAFED_DATA", "/environment")
    assert store.data_root("/argument") == Path("/argument")
    assert store.data_root() == Path("/environment")
    monkeypatch.delenv("ADAFED_DATA")
    assert store.data_root() == Path.home() / ".cache" / "adafed"
