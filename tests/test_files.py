"""Files are there whole or not at all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from adafed import AdafedError
from adafed.files import _KINDS, alone, save_tensors, write_whole


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced(tmp_path: Path, durable: bool) -> None:
    target = tmp_path / "file"
    for content in (b"one", b"two"):
        write_whole(target, content, durable=durable)
        assert target.read_bytes() == content
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_file_and_no_other(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    write_whole(target, b"old")

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("adafed.files.os.fsync", full)
    with pytest.raises(AdafedError, match="the disk is full") as told:
        write_whole(target, b"new", durable=True)
    assert str(target) in str(told.value)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_any_other_trouble_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="could not be written: No such file or directory"):
        write_whole(tmp_path / "nowhere" / "file", b"x")


def test_tensors_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4).T, "b": torch.tensor(2)}
    save_tensors(tmp_path / "t.safetensors", tensors, {"note": "x"})
    found = load_file(tmp_path / "t.safetensors")
    assert all(torch.equal(tensors[name], found[name]) for name in tensors)


@pytest.mark.parametrize("dtype", list(_KINDS), ids=str)
def test_the_library_reads_every_type_and_shape(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {name: torch.ones(shape).to(dtype) for name, shape in (("a", (2, 3)), ("b", ()), ("c", (0, 4)))}
    tensors |= {"bytes": torch.tensor([1, 2, 3], dtype=torch.uint8), "wide": torch.arange(5)}
    save_tensors(tmp_path / "t.safetensors", tensors, {"note": "größer"})
    found = load_file(tmp_path / "t.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    with safe_open(tmp_path / "t.safetensors", framework="pt") as content:
        assert content.metadata() == {"note": "größer"}
    assert [file.name for file in tmp_path.iterdir()] == ["t.safetensors"]


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="could not be written: No such file or directory"):
        save_tensors(tmp_path / "missing" / "x.safetensors", {"a": torch.zeros(2)})


def test_a_link_stays_one_and_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_whole(tmp_path / "link", b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"one"
    for place in (Path("/dev/null"), tmp_path):
        with pytest.raises(AdafedError, match="is a folder or a device, and would be replaced; name a file"):
            write_whole(place, b"one")


def test_one_at_a_time_and_no_lock_stays(tmp_path: Path) -> None:
    """Another gets past when the first has left, even by an exception; a third, when the lock it waited for is gone."""
    order: list[str] = []
    inside: list[int] = []

    def waiting(name: str) -> None:
        with alone(tmp_path / "lock"):
            inside.append(1)
            assert len(inside) == 1
            order.append(name)
            inside.pop()

    others = [threading.Thread(target=waiting, args=[name]) for name in "ab"]

    def first() -> None:
        with alone(tmp_path / "lock"):
            for other in others:
                other.start()
            others[0].join(0.1)
            order.append("first")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first()
    for other in others:
        other.join()
    assert order[0] == "first"
    assert sorted(order[1:]) == ["a", "b"]
    assert not list(tmp_path.iterdir())


def test_a_lock_that_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with alone(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()
    assert not list(tmp_path.iterdir())


def test_a_lock_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="could not be written: No such file"), alone(tmp_path / "missing" / "lock"):
        pass
