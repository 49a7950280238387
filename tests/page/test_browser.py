"""The page in a real Chromium, from disk and with the network cut."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import FLAGS, chromium, opened, scrolled_through
from made_up import HOSTILE, made_up_run, made_up_study

from adafed.page import gathered, write_page
from adafed.page.watch import serving
from adafed.rounds.records import RoundRecord
from adafed.runs.store import Store

pytestmark = pytest.mark.slow
CLIENTS = [HOSTILE, *(f"client {k}" for k in range(39))]
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    dropped = {3: {HOSTILE: f"loss is {HOSTILE}"}}
    methods = {"FedAvg": 0.4, "AdaFed": 0.6, HOSTILE.replace("/", "-"): 0.5}
    made_up_study(root, methods, seeds=2, clients=CLIENTS, dropped=dropped)
    return write_page(gathered([root]), root / "report.html")


def heads(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("table.clients thead th").all_inner_texts()]


def column(page: Any, name: str) -> list[float]:
    place = heads(page).index(name) + 1
    return [float(text) for text in page.locator(f"table.clients tbody tr > :nth-child({place})").all_inner_texts()]


def lines(page: Any, picture: str) -> list[str]:
    """The names of the lines that a picture shows."""
    found: list[str] = page.eval_on_selector(
        f'[data-picture="{picture}"]', "one => one.data.filter(trace => trace.name).map(trace => trace.name)"
    )
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_picture_is_drawn_without_a_complaint(browser: Any, study: Path, size: str, scheme: str) -> None:
    with opened(browser, study, viewport=SIZES[size], color_scheme=scheme) as page:
        scrolled_through(page)
        for picture in page.query_selector_all("[data-picture]"):
            assert picture.query_selector(".main-svg"), picture.get_attribute("data-picture")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("section h2").all_inner_texts() == [
            "Who is treated worst, and what fairness cost",
            "Did the rule do what it promises?",
            "Clients",
            "Can I trust it?",
        ]


def test_the_table_sorts(browser: Any, study: Path) -> None:
    with opened(browser, study) as page:
        button = page.get_by_role("button", name="AdaFed %")
        button.click()
        low = column(page, "AdaFed %")
        button.click()
        high = column(page, "AdaFed %")
        assert low == sorted(low)
        assert high == sorted(high, reverse=True)
        assert low[0] < high[0]
        assert page.locator("table.clients th[aria-sort]").get_attribute("aria-sort") == "descending"
        button.press("Enter")  # with the keyboard, and where the focus stayed
        assert column(page, "AdaFed %") == low


def test_labels_that_have_no_room_are_counted(browser: Any, tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", clients=["many", "few"])
    held = {
        "many": {str(label): 20 - label for label in range(10)},
        "few": {str(label): 9 - label for label in range(4)},
    }
    (run / "labels.json").write_text(json.dumps({"format": 1, "part": "train", "labels": held}))
    with opened(browser, write_page(gathered([run]), tmp_path / "page.html")) as page:
        text = page.locator("table.clients").inner_text()
        assert "0 (20), 1 (19), 2 (18) and 7 more labels" in text
        assert re.search(r"0 \(9\), 1 \(8\), 2 \(7\) and 1 more label\b(?!s)", text)


def test_the_small_tables_sort_too(browser: Any, study: Path) -> None:
    with opened(browser, study) as page:
        page.locator("table.summary").get_by_role("button", name="worst 10%").click()
        first = page.locator("table.summary tbody tr").first.inner_text()
        assert first.startswith("FedAvg")
        page.locator("table.summary").get_by_role("button", name="worst 10%").click()
        assert page.locator("table.summary tbody tr").first.inner_text().startswith("AdaFed")


def test_the_legend_hides_a_method(browser: Any, study: Path) -> None:
    with opened(browser, study) as page:
        scrolled_through(page)
        assert "AdaFed" in lines(page, "sorted")
        button = page.locator("#legend button").filter(has_text="AdaFed")
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        for picture in ("sorted", "mean", "worst", "rho", "norm", "histogram", "pareto"):
            assert "AdaFed" not in lines(page, picture)
            assert "FedAvg" in lines(page, picture)
        button.press("Space")
        assert "AdaFed" in lines(page, "sorted")


def test_the_search_finds_and_a_click_opens_the_client(browser: Any, study: Path) -> None:
    with opened(browser, study) as page:
        assert page.locator("table.clients tbody tr").count() == 25
        page.get_by_role("button", name="Next").click()
        assert page.locator("table.clients tbody tr").count() == 15
        page.get_by_label("Find a client").fill("client 17")
        assert page.locator("table.clients tbody tr").count() == 1
        assert "1 of 1 clients" in page.locator("#client-count").inner_text().replace("1–1", "1")
        page.get_by_role("button", name="client 17").click()
        dialog = page.get_by_role("dialog")
        assert dialog.get_by_role("heading").inner_text() == "Client client 17"
        page.wait_for_selector("#client-picture .main-svg")
        drawn = page.eval_on_selector("#client-picture", "one => one.data.map(trace => trace.x)")
        assert drawn == [[2, 4, 6, 8, 10]] * 3
        page.keyboard.press("Escape")
        assert not dialog.is_visible()
        page.get_by_label("Find a client").fill("nobody is called so")
        assert page.locator("table.clients tbody tr").count() == 0


def test_a_hostile_name_is_text(browser: Any, study: Path) -> None:
    with opened(browser, study) as page:
        page.get_by_label("Find a client").fill("alert(1)")
        button = page.locator("table.clients tbody button")
        assert button.inner_text() == HOSTILE
        button.click()
        assert HOSTILE in page.get_by_role("dialog").get_by_role("heading").inner_text()
        assert f"loss is {HOSTILE}" in page.get_by_role("dialog").inner_text()
        page.wait_for_selector("#client-picture .main-svg")
        page.keyboard.press("Escape")
        scrolled_through(page)
        assert page.evaluate("document.scripts.length") == 3
        page.eval_on_selector(
            '[data-picture="gained"]', "one => Plotly.Fx.hover(one, [{curveNumber: 0, pointNumber: 0}])"
        )
        assert HOSTILE.replace("/", "-") in page.locator("#legend").inner_text()


def test_who_gained_and_who_paid_follows_the_choice(browser: Any, study: Path) -> None:
    with opened(browser, study) as page:
        scrolled_through(page)
        words = page.locator('[data-chooser="pair"] [role="status"]')
        assert words.inner_text().startswith("40 of 40 clients are better off under AdaFed")
        page.locator('[data-chooser="pair"] select').nth(0).select_option(label="AdaFed")
        page.locator('[data-chooser="pair"] select').nth(1).select_option(label="FedAvg")
        assert words.inner_text().startswith("0 of 40 clients are better off under FedAvg")
        page.get_by_label("Clients of").select_option(label="seed 1")
        assert page.locator("table.clients tbody tr").count() == 25


def test_the_theme_can_be_chosen(browser: Any, study: Path) -> None:
    def paper(page: Any) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    with opened(browser, study, color_scheme="light") as page:
        light, button = paper(page), page.locator("#theme")
        button.click()
        assert paper(page) == light
        button.click()
        assert paper(page) != light


def test_it_prints(browser: Any, study: Path, tmp_path: Path) -> None:
    with opened(browser, study, color_scheme="dark") as page:
        page.pdf(path=str(tmp_path / "report.pdf"))
        assert (tmp_path / "report.pdf").stat().st_size > 50_000
        assert page.locator(".picture .main-svg").count() > 0


def test_tables_can_be_read_without_scripts(browser: Any, study: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(study.absolute().as_uri())
    assert page.locator("table.clients tbody tr").count() == len(CLIENTS)
    assert page.locator("table.summary tbody tr").count() == 3
    assert page.get_by_text("need JavaScript").is_visible()
    context.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, study: Path, size: str, scheme: str) -> None:
    import axe_playwright_python

    rules = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
    with opened(browser, study, viewport=SIZES[size], color_scheme=scheme, reduced_motion="reduce") as page:
        scrolled_through(page)
        page.evaluate(rules)
        for state in ("page", "dialog"):
            if state == "dialog":
                page.get_by_role("button", name="client 17").click()
                page.wait_for_selector("#client-picture .main-svg")
            found = page.evaluate("axe.run().then(found => found.violations)")
            told = [(one["id"], one["impact"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
            assert told == [], state


def test_kept_results_and_a_run_without_evaluations_have_pages_too(browser: Any, tmp_path: Path) -> None:
    begun = made_up_run(tmp_path / "run", rounds=1, every=9, asked=9)
    store = Store(begun / "rounds.sqlite")
    with store._db:
        store._db.execute("DELETE FROM evaluations")
    store.close()
    kept = Path(__file__).parents[2] / "results" / "cifar10-1-laptop.json"
    for place, path in enumerate((begun, kept)):
        with opened(browser, write_page(gathered([path]), tmp_path / f"{place}.html")) as page:
            scrolled_through(page)
            assert page.locator("section h2").first.is_visible()


def test_watching_follows_a_run_that_goes_on(browser: Any, tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run", rounds=4, asked=20)
    with serving(lambda: gathered([folder])) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with opened(browser, server.address, offline=False) as page:
                assert "only 4 of 20 rounds done" in page.locator("#trust").inner_text()
                page.get_by_label("Find a client").fill("a")
                store = Store(folder / "rounds.sqlite")
                store.add(RoundRecord(5, 0.1, 1.0, ()))
                store.close()
                page.locator("#trust").get_by_text("only 5 of 20 rounds done").wait_for()
                assert page.get_by_label("Find a client").input_value() == "a"
                assert page.locator("table.clients tbody tr").count() == 1
        finally:
            server.shutdown()
            thread.join()


def test_watching_a_real_run(browser: Any, tmp_path: Path) -> None:
    """`adafed report --watch` beside `adafed run`, both as a user starts them."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "adafed"]
    settings = ["--set", "rounds=4000", "--set", "model=logistic", "--set", "evaluation.every=5", "--workers", "0"]
    run = subprocess.Popen([*command, "run", "demo", "--method", "AdaFed, memory", "--out", str(out), "-q", *settings])
    watch = None
    try:
        while not (out / "config.toml").exists() or not gathered([out]).methods:
            assert run.poll() is None
            time.sleep(0.2)
        watch = subprocess.Popen([*command, "report", "--watch", str(out)], stdout=subprocess.PIPE, text=True)
        assert watch.stdout is not None
        address = watch.stdout.readline().split()[1]
        with opened(browser, address, offline=False) as page:
            told = page.locator("#trust li").get_by_text("of 4000 rounds done")
            first = told.inner_text()
            page.get_by_text(first, exact=True).wait_for(state="detached")
            before, after = (int(re.findall(r"only (\d+) of", text)[0]) for text in (first, told.inner_text()))
            assert after > before
            scrolled_through(page)
            assert run.poll() is None
    finally:
        for process in (run, watch):
            if process is not None:
                process.terminate()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
