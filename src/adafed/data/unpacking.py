"""How much a packed file may unpack to. A few megabytes can hold many gigabytes of zeros, which no data set needs: what
is out of proportion to the file is refused before it takes up memory or disk."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from adafed.errors import AdafedError

HARMLESS = 2**28  # bytes that may be unpacked from any file
TIMES = 100  # its own size that a packed array may have beyond; images reach a few, text ten
ARCHIVE_TIMES = 20  # and an archive of images, which are packed themselves
_BLOCK = 2**20


def require_in_proportion(where: str, packed: int, unpacked: int, times: int = TIMES) -> None:
    if unpacked > max(HARMLESS, times * packed):
        raise AdafedError(
            f"{where} has {packed:,} bytes and unpacks to {_told(unpacked)}, more than {times} times as much; it is "
            "refused. If that is right, save it unpacked"
        )


def gunzipped(path: Path) -> bytes:
    """The content of a gzip file that is in proportion to it."""
    packed = path.stat().st_size
    most = max(HARMLESS, TIMES * packed)
    parts, total = [], 0
    try:
        with gzip.open(path) as file:
            while block := file.read(_BLOCK):
                parts.append(block)
                total += len(block)
                if total > most:
                    break
    except (EOFError, OSError, zlib.error) as error:
        raise AdafedError(f"{path} is truncated or corrupt: it does not decompress.") from error
    require_in_proportion(str(path), packed, total)
    return b"".join(parts)


def _told(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size:,} bytes"
