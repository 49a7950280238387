"""Files that are there whole or not at all: written beside their place, then renamed into it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from adafed.errors import AdafedError


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    with _beside(path, durable) as temporary:
        temporary.write_bytes(content)


@contextmanager
def _beside(path: Path, durable: bool) -> Iterator[Path]:
    """A file to write, which then takes the place of `path`; `durable` waits for the disk, which a power cut needs and
    a killed process does not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with full_disk_in_a_sentence(path):
        try:
            yield temporary
            if durable:
                with temporary.open("rb+") as file:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def save_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None, *, durable: bool = False
) -> None:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with _beside(path, durable) as temporary:
        try:
            save_file(whole, temporary, dict(metadata) if metadata else None)  # `save` would copy everything thrice
        except SafetensorError as error:
            raise _as_os_error(error) from None


def _as_os_error(error: SafetensorError) -> Exception:
    """The library tells a full disk in words only."""
    code = re.search(r"os error (\d+)", str(error))
    return OSError(int(code[1]), os.strerror(int(code[1]))) if code else error


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
