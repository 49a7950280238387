"""How long the page of a large study takes to make, how much memory, how large it is and how soon it can be used.

    python benchmarks/report.py                       10,000 clients, 500 rounds evaluated every 25, 10 runs
    python benchmarks/report.py --clients 100 --runs 20

The runs are made up: rows as a run leaves them, with accuracies drawn at random. The page is made by `adafed report` in
a process of its own, and opened from disk in the system's Chromium (`pip install playwright`, the package chromium).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from adafed.config.configuration import config_from
from adafed.rounds.records import Evaluation, Participant, RoundRecord, Scores
from adafed.runs.store import Store

LIMITS = {"seconds": 60.0, "MB of memory": 1000.0, "MB of page": 40.0, "seconds to use": 5.0}


def make_run(path: Path, rule: str, seed: int, clients: int, rounds: int, every: int, cohort: int) -> None:
    random = np.random.default_rng([seed, *rule.encode()])
    path.mkdir(parents=True)
    config = config_from({"name": "large", "seed": seed, "rounds": rounds, "rule": rule})
    (path / "config.toml").write_text(config.completed().to_toml())
    data = {"name": "made-up", "clients": clients, "checksum": f"{seed:064d}"}
    facts = {"format": 1, "data": data, "seeds": {}, "trained_together": 1, "engine": "local", "versions": {}}
    (path / "run.json").write_text(json.dumps(facts))
    held = {str(k): {str(k % 10): 40, str((k + 3) % 10): 20} for k in range(clients)}
    (path / "labels.json").write_text(json.dumps({"format": 1, "part": "train", "labels": held}))
    ability = random.beta(5, 2, clients)
    store = Store(path / "rounds.sqlite")
    for t in range(1, rounds + 1):
        members = tuple(
            Participant(str(k), 60, 4, 1.0, coefficient=float(random.normal(0.01, 0.01)),
                        dropped="did not answer" if random.random() < 0.02 else None)
            for k in sorted(random.permutation(clients)[:cohort].tolist())
        )  # fmt: skip
        evaluations = ()
        if t % every == 0:
            accuracies = np.clip(ability * (0.4 + 0.6 * t / rounds) + random.normal(0, 0.03, clients), 0, 1)
            scores = tuple(
                (str(k), Scores(k, 50, 1.0 - a, round(50 * a) / 50)) for k, a in enumerate(accuracies.tolist())
            )
            evaluations = (Evaluation("test", False, scores),)
        store.add(RoundRecord(t, 0.1, 1.0, members, 1.0, 1.2, 10.0, 0, 0.8, 0.01, evaluations=evaluations))
    store.close()


def made(root: Path, arguments: argparse.Namespace) -> None:
    names = {"FedAvg": "fedavg", "AdaFed": "adafed"}
    for place in range(arguments.runs):
        method, seed = list(names)[place % 2], place // 2
        make_run(root / method / f"seed-{seed}", names[method], seed, arguments.clients, arguments.rounds,
                 arguments.every, min(arguments.cohort, arguments.clients))  # fmt: skip
        print(f"run {place + 1} of {arguments.runs} made up", flush=True)


def page_of(root: Path) -> tuple[float, float, float]:
    """Seconds, MB of memory at most, MB of page; of `adafed report` from its start to its end."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "adafed", "report", str(root)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    seconds = time.perf_counter() - began
    unit = 1e3 if sys.platform != "darwin" else 1e6
    assert isinstance(used, resource.struct_rusage)
    return seconds, used.ru_maxrss / unit, (root / "report.html").stat().st_size / 1e6


def usable_after(page_file: Path) -> dict[str, float]:
    """Seconds from opening until tables, legend and first picture are there, and for sorting, searching and more."""
    from playwright.sync_api import sync_playwright

    path = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        found = {}

        def lap(name: str, began: float) -> None:
            found[name] = time.perf_counter() - began

        began = time.perf_counter()
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready]")
        page.wait_for_selector('[data-picture="sorted"] .main-svg')
        lap("usable", began)
        began = time.perf_counter()
        page.locator("table.clients thead button").nth(2).click()
        page.wait_for_selector("table.clients th:nth-child(3)[aria-sort]")
        lap("sort", began)
        began = time.perf_counter()
        page.get_by_label("Find a client").fill("99")
        page.locator("#client-count").wait_for()
        lap("search", began)
        began = time.perf_counter()
        page.locator("table.clients tbody button").first.click()
        page.wait_for_selector("#client-picture .main-svg")
        lap("one client", began)
        page.keyboard.press("Escape")
        began = time.perf_counter()
        page.locator("#figure-gained").scroll_into_view_if_needed()
        page.wait_for_selector('[data-picture="gained"] .main-svg')
        lap("who gained", began)
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("clients", 10_000), ("rounds", 500), ("every", 25), ("runs", 10), ("cohort", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--keep", type=Path, help="make up the runs here, and leave them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = arguments.keep or Path(folder) / "study"
        if not root.exists():
            made(root, arguments)
        seconds, memory, size = page_of(root)
        opened = usable_after((root / "report.html").absolute())
        for name, value in zip(LIMITS, (seconds, memory, size, opened["usable"]), strict=True):
            print(f"{name:>16} {value:8.1f}   limit {LIMITS[name]:g}{'' if value <= LIMITS[name] else '  EXCEEDED'}")
        for name, value in opened.items():
            print(f"{name:>16} {value:8.2f} s")


if __name__ == "__main__":
    main()
