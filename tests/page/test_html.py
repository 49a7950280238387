"""The page as text: whole, self-contained, and nobody's name is anything but text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import HOSTILE, made_up_run, made_up_study

from adafed.page import gathered, page, write_page
from adafed.page.html import embedded
from adafed.page.sentences import sentences


class Tags(HTMLParser):
    """Every element that a page opens, and the text outside of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append((tag, dict(attrs)))
        self._inside = [tag] if tag in ("script", "style") else []

    def handle_endtag(self, tag: str) -> None:
        self._inside = []

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    return tags


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("study")
    clients = [HOSTILE, "</script>", "&amp;", "'\"", *"abcdef"]
    dropped = {3: {HOSTILE: f"loss is {HOSTILE}"}}
    return page(
        gathered(
            [made_up_study(root, {"FedAvg": 0.4, HOSTILE.replace("/", "-"): 0.6}, clients=clients, dropped=dropped)]
        )
    )


def test_a_hostile_name_is_text_everywhere(text: str) -> None:
    tags = parsed(text)
    assert [tag for tag, _ in tags.opened].count("script") == 3
    assert HOSTILE in tags.text
    assert not any(key.startswith("on") for _, attributes in tags.opened for key in attributes)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert not set("<>&") & set(data[1])
    assert HOSTILE in json.loads(data[1])["federations"][0]["ids"]


@given(
    st.recursive(
        st.text() | st.none() | st.floats(allow_nan=False, allow_infinity=False), lambda inner: st.lists(inner)
    )
)
def test_embedded_data_comes_back_and_ends_nothing(content: object) -> None:
    told = embedded(content)
    assert json.loads(told) == content
    assert not set("<>&") & set(told)


def test_the_page_names_no_other_place(text: str) -> None:
    for tag, attributes in parsed(text).opened:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base")
        assert "src" not in attributes
        if "href" in attributes:
            assert str(attributes["href"]).startswith("#")
    assert "connect-src 'none'" in text
    assert "default-src 'none'" in text
    assert "'unsafe-inline'; img-src" in text
    assert "script-src 'sha256-" in text


def test_tables_are_there_without_scripts(text: str) -> None:
    tags = parsed(text)
    classes = [attributes.get("class") for tag, attributes in tags.opened if tag == "table"]
    assert {"summary", "differences", "clients", "runs", "events", "versions", "settings"} <= set(classes)
    assert "JavaScript" in tags.text


def test_the_sentences_come_first(tmp_path: Path) -> None:
    report = gathered([made_up_study(tmp_path, {"FedAvg": 0.4, "AdaFed": 0.6})])
    shown = parsed(page(report)).text
    places = [shown.index(one.split("(σ_a)")[0]) for one in sentences(report)]
    assert places == sorted(places)
    assert places[-1] < shown.index("The methods in numbers")


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run")
    first = write_page(gathered([folder]), tmp_path / "one.html").read_bytes()
    assert write_page(gathered([folder]), tmp_path / "two.html").read_bytes() == first
    assert not list(tmp_path.glob("*.partial"))


def test_twenty_runs_of_a_hundred_clients_stay_below_six_megabytes(tmp_path: Path) -> None:
    clients = [str(k) for k in range(100)]
    methods = {"FedAvg": 0.4, "AdaFed": 0.6, "q-FFL": 0.5, "TERM": 0.5}
    made_up_study(tmp_path, methods, seeds=5, clients=clients, rounds=200, every=1)
    assert len(page(gathered([tmp_path])).encode()) < 6_000_000


def test_a_loss_without_end_is_told_and_does_not_break_the_page(tmp_path: Path) -> None:
    import sqlite3

    folder = made_up_run(tmp_path / "run")
    with sqlite3.connect(folder / "rounds.sqlite") as database:
        database.execute("UPDATE evaluations SET loss = 9e999 WHERE client = 'a'")
        database.execute("UPDATE rounds SET norm = 9e999, condition = 9e999")
    text = page(gathered([folder]))
    assert "not finite numbers" in text
    assert "ill-conditioned" in text


def test_without_scripts_a_client_is_drawn_as_often_as_in_all_runs_of_a_method(tmp_path: Path) -> None:
    clients = tuple("abcdefgh")
    levels = {"FedAvg": 0.4, "AdaFed": 0.6}
    report = gathered([made_up_study(tmp_path / "study", levels, 3, clients=clients, checksum="0" * 64)])
    of_fedavg = [run.clients for run in report.runs if run.method == "FedAvg" and run.clients is not None]
    wanted = {client: str(sum(int(one.drawn[k]) for one in of_fedavg)) for k, client in enumerate(clients)}
    table = re.search(r'<table class="clients">(.*?)</table>', page(report), re.DOTALL)
    assert table is not None
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table[1], re.DOTALL)]
    place = rows[0].index("drawn")
    assert {row[0]: row[place] for row in rows[1:]} == wanted
