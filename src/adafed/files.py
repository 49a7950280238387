"""Files that are there whole or not at all: written beside their place, then renamed into it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save

from adafed.errors import AdafedError


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """`durable` waits for the disk, which a power cut needs and a killed process does not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with full_disk_in_a_sentence(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def save_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None, *, durable: bool = False
) -> None:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(whole, dict(metadata) if metadata else None), durable=durable)


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
