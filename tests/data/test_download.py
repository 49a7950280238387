"""Downloads against a server on this machine: whole, resumed, cut, refused."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

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
