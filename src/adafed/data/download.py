"""Fetching one published file: resumable, shown with a progress bar, refused if its checksum is not the published one.

The bytes gather in `<name>.part`; a run that is cut leaves it there and the next one asks the server for the rest only.
The file takes its real name once its MD5 is right, so a file under its real name is whole. One process at a time
fetches a file or unpacks it; the others wait and find it there.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from adafed.data.unpacking import ARCHIVE_TIMES, require_in_proportion
from adafed.errors import AdafedError
from adafed.files import alone
from adafed.version import __version__

_BLOCK = 1 << 18


@dataclass(frozen=True)
class Remote:
    """A file at its publisher's: the publisher's MD5 decides whether what arrived is it."""

    url: str
    md5: str
    size: int

    @property
    def filename(self) -> str:
        return Path(urlsplit(self.url).path).name


def fetch(remote: Remote, folder: Path, *, attempts: int = 4, timeout: float = 30.0, show: bool = True) -> Path:
    """The file in `folder`, downloaded unless it is there; a cut connection is taken up again, `attempts` in all."""
    if urlsplit(remote.url).scheme not in ("http", "https"):
        raise AdafedError(f"{remote.url} is not an http or https address, which downloads need.")
    target = folder / remote.filename
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / f".{remote.filename}.lock"):  # two would append to one part
            if not target.exists():  # a process that was waited for may have fetched it
                _fetch(remote, target, attempts, timeout, show)
    except OSError as error:
        raise AdafedError(f"The download of {remote.url} cannot be written to {folder}: {error.strerror}.") from error
    return target


def _fetch(remote: Remote, target: Path, attempts: int, timeout: float, show: bool) -> None:
    part = target.with_name(target.name + ".part")
    with _progress(remote, show) as progress:
        for attempt in range(1, attempts + 1):
            try:
                _continue(remote, part, timeout, progress)
                break
            except (urllib.error.HTTPError, _Refused) as error:
                raise AdafedError(f"The server answered {error} to {remote.url}; try again later.") from error
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                if attempt == attempts:
                    held = part.stat().st_size if part.exists() else 0
                    reason = str(getattr(error, "reason", error)).rstrip(".") or type(error).__name__
                    raise AdafedError(
                        f"The download of {remote.url} stopped at {held:,} of {remote.size:,} bytes ({reason}); "
                        f"run the same command again and it goes on from there."
                    ) from error
    _check(remote, part)
    os.replace(part, target)


class _Refused(Exception):
    """An answer that is neither the whole file nor the part asked for."""


class _Progress(Protocol):
    def at(self, done: int) -> None: ...


def _continue(remote: Remote, part: Path, timeout: float, progress: _Progress) -> None:
    """Fetch what `part` lacks; return when it has the published number of bytes."""
    held = part.stat().st_size if part.exists() else 0
    if held > remote.size:  # not a beginning of this file
        part.unlink()
        held = 0
    if held == remote.size:
        return
    headers = {"User-Agent": f"adafed/{__version__}", "Accept-Encoding": "identity"}
    if held:
        headers["Range"] = f"bytes={held}-"
    request = urllib.request.Request(remote.url, headers=headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        if answer.status == 206 and held:
            if not str(answer.headers.get("Content-Range", "")).startswith(f"bytes {held}-"):
                raise _Refused("another range than the one asked for")
        elif answer.status == 200:
            held = 0  # the server ignores ranges: from the beginning
        else:
            raise _Refused(f"status {answer.status}")
        with part.open("ab" if held else "wb") as file:
            held = _copy(answer, file, held, remote.size, progress)
    if held < remote.size:
        raise ConnectionError("the connection was cut")


def _copy(answer: IO[bytes], file: IO[bytes], held: int, size: int, progress: _Progress) -> int:
    while held <= size and (block := answer.read(_BLOCK)):
        file.write(block)
        held += len(block)
        progress.at(held)
    return held


def _check(remote: Remote, part: Path) -> None:
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != remote.md5:
        part.unlink()  # a wrong file cannot be resumed into a right one
        raise AdafedError(
            f"{remote.url} gave a file with MD5 {found} instead of the published {remote.md5}, so it was thrown away."
        )


@contextmanager
def _progress(remote: Remote, show: bool) -> Iterator[_Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as bar:
        task = bar.add_task(remote.filename, total=remote.size)

        class Shown:
            def at(self, done: int) -> None:
                bar.update(task, completed=done)

        yield Shown()


def unpack(archive: Path, folder: str) -> Path:
    """The archive's top folder, beside the archive; it appears whole or, if the run is killed, not at all."""
    target = archive.parent / folder
    with alone(archive.parent / f".{folder}.lock"):
        if not target.is_dir():  # a process that was waited for may have unpacked it
            # Whoever writes one has the lock, so these are of processes that were killed.
            for left in archive.parent.glob(f".{folder}.unpacking-*"):
                shutil.rmtree(left, ignore_errors=True)
            _unpack(archive, target)
    return target


def _unpack(archive: Path, target: Path) -> None:
    import tarfile
    import zipfile

    scratch = target.with_name(f".{target.name}.unpacking-{os.getpid()}")
    try:
        packed = archive.stat().st_size
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped:
                require_in_proportion(str(archive), packed, sum(_room(one.file_size) for one in zipped.infolist()),
                                      ARCHIVE_TIMES)  # fmt: skip
                zipped.extractall(scratch)  # zipfile drops absolute and parent paths itself
        else:
            total = 0

            def counted(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
                nonlocal total
                total += _room(member.size)
                require_in_proportion(str(archive), packed, total, ARCHIVE_TIMES)
                return tarfile.data_filter(member, path)

            with tarfile.open(archive) as tar:
                tar.extractall(scratch, filter=counted)
        inner = scratch / target.name
        # CINIC-10's archive holds its three folders bare; the others hold one folder of the expected name.
        os.replace(inner if inner.is_dir() else scratch, target)
    except AdafedError:
        raise
    except Exception as error:  # the two libraries say many things of a broken archive
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise AdafedError(
                f"the disk is full, so {archive} cannot be unpacked; free some space and run the same command again"
            ) from None
        reason = str(error).rstrip(".").replace("\n", " ")
        raise AdafedError(f"{archive} cannot be unpacked ({reason}); delete it and fetch it again.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _room(size: int) -> int:
    """What a file takes up on disk at least, also an empty one."""
    return max(size, 512)
