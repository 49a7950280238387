"""The page of a run that goes on: for this machine alone, newer when the run is, patient with half-written files."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from made_up import made_up_run

from adafed import AdafedError
from adafed.page import gathered
from adafed.page.watch import Server, Watched, serving
from adafed.rounds.records import RoundRecord
from adafed.runs.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made_up_run(tmp_path / "run", rounds=4, asked=9)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serving(lambda: gathered([folder])) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def asked(server: Server, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = HTTPConnection(*server.server_address[:2])
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert asked(server, "/")[0] == 200
    assert asked(server, "/", "localhost:80")[0] == 200
    assert asked(server, "/", "evil.example")[0] == 403
    assert asked(server, "/../etc/passwd")[0] == 404


def test_there_is_an_answer_only_where_there_is_something_newer(server: Server, folder: Path) -> None:
    status, first = asked(server, "/live?seen=nothing")
    assert status == 200
    seen = json.loads(first)["data"]["live"]
    assert asked(server, f"/live?seen={seen}") == (204, b"")
    store = Store(folder / "rounds.sqlite")
    store.add(RoundRecord(5, 0.1, 1.0, ()))
    store.close()
    server.watched._next = 0.0
    status, newer = asked(server, f"/live?seen={seen}")
    assert status == 200
    assert "5 of 9" in json.loads(newer)["main"]


def test_a_run_that_cannot_be_read_for_a_moment_stays_as_it_was(folder: Path) -> None:
    watched = Watched(lambda: gathered([folder]))
    first = watched.newest()
    (folder / "config.toml").write_text("[")
    watched._next = 0.0
    assert watched.newest() == first


def test_what_is_wrong_is_told_before_anything_is_served(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(AdafedError, match="is not there"), serving(lambda: gathered([tmp_path / "none"])):
        pass
    with serving(lambda: gathered([folder])) as one:
        port = int(one.server_address[1])
        with pytest.raises(AdafedError, match=f"--port {port}"), serving(lambda: gathered([folder]), port):
            pass
