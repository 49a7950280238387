"""Files that are there whole or not at all: written beside their place, then renamed into it; one process at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from adafed.errors import AdafedError

_KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def parsed(text: str | bytes) -> Any:
    """JSON. Nesting that is deeper than Python's stack is a `ValueError` too, as is all else that is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    with _beside(path, durable) as temporary:
        temporary.write_bytes(content)


def on_disk(path: Path) -> None:
    """Wait until what a file holds, or which files a folder holds, would be there after a power cut."""
    with full_disk_in_a_sentence(path):
        _wait_for_the_disk(path)


def _wait_for_the_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial(path: Path, process: int) -> Path:
    """What a process writes before it is `path`; one that was killed leaves it there."""
    return path.with_name(f".{path.name}.{process}.partial")


@contextmanager
def _beside(path: Path, durable: bool) -> Iterator[Path]:
    """A file to write, which then takes the place of `path`; `durable` waits for the disk, which a power cut needs and
    a killed process does not."""
    with full_disk_in_a_sentence(path):
        path = path.resolve() if path.is_symlink() else path  # a link stays one
        if path.exists() and not path.is_file():
            raise AdafedError(f"{path} is a folder or a device, and would be replaced; name a file")
    temporary = partial(path, os.getpid())
    with full_disk_in_a_sentence(path):
        try:
            yield temporary
            if durable:
                _wait_for_the_disk(temporary)
            os.replace(temporary, path)
            if durable:
                _wait_for_the_disk(path.parent)  # the name too
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One process at a time gets past here with this file, which is made and removed again; the others wait. One that
    ends gives it back, however it ends."""
    with full_disk_in_a_sentence(lock):
        while True:
            descriptor = _opened(lock)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                mine = os.path.samestat(os.fstat(descriptor), os.stat(lock))
            except FileNotFoundError:
                mine = False
            except BaseException:
                os.close(descriptor)
                raise
            if mine:
                break
            os.close(descriptor)  # whoever had it has removed it: the next one has another file of that name
    try:
        yield
    finally:
        with suppress(OSError):  # a folder that may no longer be written keeps it, and it serves again
            lock.unlink()
        os.close(descriptor)


def _opened(lock: Path) -> int:
    """To write, without which a network's file system gives no lock; another user's that was killed is read."""
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        return os.open(lock, os.O_RDONLY | os.O_CLOEXEC)


def save_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None, *, durable: bool = False
) -> None:
    """A safetensors file. The library's `save` copies everything thrice, which is most of a checkpoint's time, and its
    `save_file` leaves a file of a name of its own behind when it is killed; the format is a header and the numbers."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    order = sorted(whole, key=lambda name: (-whole[name].itemsize, name))  # wide numbers first, so all are aligned
    head: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    start = 0
    for name in order:
        stop = start + whole[name].nbytes
        kind = _KINDS[whole[name].dtype]
        head[name] = {"dtype": kind, "shape": list(whole[name].shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with _beside(path, durable) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(whole[name].reshape(-1).view(torch.uint8).numpy().data)


@contextmanager
def full_disk_in_a_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise AdafedError(
                f"the disk is full: {path} could not be written; what was saved before is whole, "
                "so free some space and resume"
            ) from None
        raise AdafedError(f"{path} could not be written: {error.strerror}") from None
