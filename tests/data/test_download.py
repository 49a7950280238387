"""Downloads against a server on this machine: whole, resumed, cut, refused."""

from __future__ import annotations

import errno
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adafed.data import download
from adafed.data.download import Remote, fetch, unpack
from adafed.errors import AdafedError

BODY = np.random.default_rng(0).integers(0, 256, 700_000, dtype=np.uint8).tobytes()


class Publisher(ThreadingHTTPServer):
    """Serves BODY. `cuts` lists how many bytes each coming answer sends before the connection breaks."""

    daemon_threads = True
    cuts: list[int]
    ranges: list[str | None]
    honours_ranges = True
    status: int | None = None


class Handler(BaseHTTPRequestHandler):
    server: Publisher

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        if self.server.status:
            self.send_error(self.server.status)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.honours_ranges else 0
        rest = BODY[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.server.cuts.pop(0)] if self.server.cuts else rest)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(("127.0.0.1", 0), Handler) as server:
        server.cuts, server.ranges = [], []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(server: Publisher, md5: str | None = None) -> Remote:
    url = f"http://127.0.0.1:{server.server_address[1]}/set.bin"
    return Remote(url, md5 or hashlib.md5(BODY).hexdigest(), len(BODY))


def test_whole_file_arrives_under_its_own_name_only(publisher: Publisher, tmp_path: Path) -> None:
    path = fetch(remote(publisher), tmp_path / "new")
    assert path == tmp_path / "new" / "set.bin"
    assert path.read_bytes() == BODY
    assert [file.name for file in path.parent.iterdir()] == ["set.bin"]


def test_present_file_is_not_asked_for(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(b"here")
    assert fetch(remote(publisher), tmp_path).read_bytes() == b"here"
    assert publisher.ranges == []


@pytest.mark.parametrize("held", [1, 300_000, len(BODY) - 1])
def test_part_is_continued_where_it_ends(publisher: Publisher, tmp_path: Path, held: int) -> None:
    (tmp_path / "set.bin.part").write_bytes(BODY[:held])
    assert fetch(remote(publisher), tmp_path).read_bytes() == BODY
    assert publisher.ranges == [f"bytes={held}-"]


def test_complete_part_needs_no_request(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(BODY)
    assert fetch(remote(publisher), tmp_path).read_bytes() == BODY
    assert publisher.ranges == []


def test_a_download_beside_another_waits_for_its_file(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two appended to one part, and the one that was done first gave it its real name while the other wrote on."""
    found: list[bytes] = []
    other = threading.Thread(target=lambda: found.append(fetch(remote(publisher), tmp_path, show=False).read_bytes()))
    one_fetches = download._continue

    def beside(*given: Any) -> None:
        if other.ident is None:
            other.start()
            other.join(0.2)  # long enough to fetch the file, if it did not wait
        one_fetches(*given)

    monkeypatch.setattr(download, "_continue", beside)
    assert fetch(remote(publisher), tmp_path, show=False).read_bytes() == BODY
    other.join()
    assert found == [BODY]
    assert publisher.ranges == [None]
    assert [file.name for file in tmp_path.iterdir()] == ["set.bin"]


def test_server_without_ranges_sends_all_again(publisher: Publisher, tmp_path: Path) -> None:
    publisher.honours_ranges = False
    (tmp_path / "set.bin.part").write_bytes(b"x" * 1000)
    assert fetch(remote(publisher), tmp_path).read_bytes() == BODY


def test_cut_connection_is_taken_up_again(publisher: Publisher, tmp_path: Path) -> None:
    publisher.cuts = [100_000, 200_000]
    assert fetch(remote(publisher), tmp_path).read_bytes() == BODY
    assert publisher.ranges == [None, "bytes=100000-", "bytes=300000-"]


def test_cut_for_good_keeps_the_part_for_the_next_run(publisher: Publisher, tmp_path: Path) -> None:
    publisher.cuts = [100_000, 50_000]
    with pytest.raises(AdafedError, match=r"stopped at 150,000 of 700,000 bytes .* goes on from there\.$"):
        fetch(remote(publisher), tmp_path, attempts=2)
    assert not (tmp_path / "set.bin").exists()
    assert fetch(remote(publisher), tmp_path).read_bytes() == BODY
    assert publisher.ranges[-1] == "bytes=150000-"


def test_wrong_checksum_is_refused_and_leaves_nothing(publisher: Publisher, tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"instead of the published 0{32}"):
        fetch(remote(publisher, "0" * 32), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_damaged_part_is_refused_and_the_next_run_succeeds(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(AdafedError, match="MD5"):
        fetch(remote(publisher), tmp_path)
    assert fetch(remote(publisher), tmp_path).read_bytes() == BODY


def test_part_longer_than_the_file_starts_over(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(BODY + b"more")
    assert fetch(remote(publisher), tmp_path).read_bytes() == BODY


def test_refusal_of_the_server_is_one_sentence(publisher: Publisher, tmp_path: Path) -> None:
    publisher.status = 404
    with pytest.raises(AdafedError, match="404"):
        fetch(remote(publisher), tmp_path)
    assert len(publisher.ranges) == 1


def test_nobody_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="stopped at 0 of 5 bytes"):
        fetch(Remote("http://127.0.0.1:1/set.bin", "0" * 32, 5), tmp_path, attempts=1)


def test_other_schemes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="http"):
        fetch(Remote("file:///etc/hostname", "0" * 32, 5), tmp_path)


@pytest.mark.parametrize("name", ["broken.tar.gz", "broken.zip"])
def test_broken_archive_is_one_sentence_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not an archive")
    with pytest.raises(AdafedError, match="cannot be unpacked"):
        unpack(tmp_path / name, "folder")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def archive(path: Path) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr("set/a", b"whole")
    else:
        with tarfile.open(path, "w:gz") as tar:
            member = tarfile.TarInfo("set/a")
            member.size = 5
            tar.addfile(member, io.BytesIO(b"whole"))
    return path


@pytest.mark.parametrize(("name", "library"), [("set.tar.gz", tarfile.TarFile), ("set.zip", zipfile.ZipFile)])
def test_a_full_disk_is_told_and_the_archive_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: type
) -> None:
    def full(self: object, path: Path, **_: object) -> None:
        (path / "set").mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(library, "extractall", full)
    with pytest.raises(AdafedError, match="the disk is full") as told:
        unpack(archive(tmp_path / name), "set")
    assert "delete" not in str(told.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["set.tar.gz", "set.zip"])
def test_what_killed_processes_unpacked_is_removed(tmp_path: Path, name: str) -> None:
    for folder in (".set.unpacking-1", ".set.unpacking-4194305", ".other.unpacking-1"):
        (tmp_path / folder / "set").mkdir(parents=True)
    assert (unpack(archive(tmp_path / name), "set") / "a").read_bytes() == b"whole"
    assert {path.name for path in tmp_path.iterdir()} == {name, "set", ".other.unpacking-1"}


def test_a_process_that_unpacks_beside_another_waits_for_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Path] = []
    times: list[int] = []
    packed = archive(tmp_path / "set.tar.gz")
    other = threading.Thread(target=lambda: found.append(unpack(packed, "set")))
    one_unpacks = tarfile.TarFile.extractall

    def beside(*given: Any, **options: Any) -> None:
        times.append(1)
        if other.ident is None:
            other.start()
            other.join(0.2)
        one_unpacks(*given, **options)

    monkeypatch.setattr(tarfile.TarFile, "extractall", beside)
    assert unpack(packed, "set") == tmp_path / "set"
    other.join()
    assert found == [tmp_path / "set"]
    assert len(times) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"set.tar.gz", "set"}
