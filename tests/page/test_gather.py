"""Runs, studies and kept results become one report; what cannot be read is told in a sentence."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_up import made_up_run, made_up_study

from adafed import AdafedError
from adafed.config.loading import load_kept
from adafed.page import Named, describe_study, gathered, page
from adafed.page.doubts import doubts
from adafed.runs.summary import summarise
from adafed.studies.compare import Run as StudyRun
from adafed.studies.kept import gathered as kept_from
from adafed.studies.kept import keep


def test_a_run_says_what_its_summary_says(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run")
    (run,) = gathered([folder]).runs
    summary = summarise(folder)
    for tail, expected in ((False, summary.final), (True, summary.tail)):
        found = run.measures(tail)
        for key in ("mean", "std", "floor", "worst_10", "best_10", "jain", "loss_std", "rho"):
            assert found[key] == pytest.approx(expected[key]), key
    assert (run.method, run.done, run.asked) == (summary.label, 10, 10)


def test_clients_have_what_the_rows_say(tmp_path: Path) -> None:
    dropped = {2: {"b": "loss is nan"}, 4: {"b": "loss is nan", "c": "did not answer"}}
    folder = made_up_run(tmp_path / "run", dropped=dropped)
    (run,) = gathered([folder]).runs
    clients = run.clients
    assert clients is not None
    assert clients.ids == tuple("abcdefghij")
    assert clients.dropped[:3].tolist() == [0, 2, 1]
    assert clients.reasons[1] == {"dropped: loss is nan": 2}
    assert clients.labels is not None
    assert clients.labels[0] == {"0": 30, "1": 10}
    assert clients.train_samples.tolist() == [40.0] * 10
    assert run.client_accuracies(False) == pytest.approx(
        100 * np.round(50 * 0.6 * (0.5 + 0.5 * np.arange(10) / 9)) / 50
    )
    assert {(event.what, event.why): event.times for event in run.events} == {
        ("dropped", "loss is nan"): 2,
        ("dropped", "did not answer"): 1,
    }


@pytest.mark.parametrize("what", ["bounded", "warned"])
def test_what_guards_did_and_saw_is_an_event(tmp_path: Path, what: str) -> None:
    notes = {3: {what: {"a": "length 3.1, allowed 2"}}, 5: {what: {"a": "length 9.1, allowed 2"}}}
    (run,) = gathered([made_up_run(tmp_path / "run", notes=notes)]).runs
    (event,) = run.events
    assert (event.what, event.times, event.rounds, event.clients) == (what, 2, (3, 5), 1)
    assert run.clients is not None
    assert run.clients.reasons[0] == {f"{what}: length …, allowed …": 2}


def test_a_study_is_called_as_it_was(tmp_path: Path) -> None:
    made_up_study(tmp_path, {"q-FFL-q=1": 0.5, "FedAvg": 0.4})
    assert list(gathered([tmp_path]).methods) == ["FedAvg", "q-FFL-q=1"]
    describe_study(tmp_path, "A title", {"q-FFL-q=1": "q-FFL (q=1)", "FedAvg": "FedAvg"}, ["a note"])
    report = gathered([tmp_path])
    assert (report.title, list(report.methods), report.notes) == ("A title", ["q-FFL (q=1)", "FedAvg"], ("a note",))
    assert report.reference == "FedAvg"
    assert report.seeds == (0, 1, 2)
    describe_study(tmp_path, "A title", {"FedAvg": "FedAvg"}, [])  # some of its methods were run again
    assert set(gathered([tmp_path]).methods) == {"q-FFL (q=1)", "FedAvg"}


def test_runs_of_one_name_and_different_settings_are_told_apart(tmp_path: Path) -> None:
    for place, gamma in enumerate(("1.0", "3.0")):
        folder = made_up_run(tmp_path / str(place))
        text = (folder / "config.toml").read_text().replace("rate = 1.0", f"rate = {gamma}")
        (folder / "config.toml").write_text(text)
    names = list(gathered([tmp_path / "0", tmp_path / "1"]).methods)
    assert len(names) == 2
    assert names[0].endswith("server.rate=1.0")
    assert names[1].endswith("server.rate=3.0")


def test_the_same_run_twice_is_named_by_its_place(tmp_path: Path) -> None:
    folders = [made_up_run(tmp_path / name, checksum="f" * 64) for name in ("one", "two")]
    assert [method.endswith(f"({folder})") for method, folder in zip(gathered(folders).methods, folders, strict=True)]
    assert len(gathered(folders).methods) == 2


def test_a_run_that_a_folder_holds_twice_counts_once(tmp_path: Path) -> None:
    made_up_study(tmp_path, {"FedAvg": 0.4, "AdaFed": 0.5})
    whole = gathered([tmp_path])
    again = tmp_path / "fedavg-seed-1"
    shutil.copytree(tmp_path / "FedAvg" / "seed-1", again)
    called = gathered([again]).runs[0].method
    describe_study(tmp_path, "A title", {"FedAvg": called, "AdaFed": "AdaFed"}, [])
    report = gathered([tmp_path])
    assert {method: len(runs) for method, runs in report.methods.items()} == {called: 3, "AdaFed": 3}
    assert len(report.runs) == len(whole.runs)
    (note,) = report.notes
    assert note.startswith(str(again))
    assert note.endswith("and is left out")


def described_study(root: Path) -> Path:
    study = made_up_study(root, {"FedAvg": 0.4, "AdaFed": 0.5}, rounds=10)
    describe_study(study, "A title", {"FedAvg": "FedAvg", "AdaFed": "AdaFed"}, [])
    return study


def seeds_of(*paths: Path) -> dict[str, list[int]]:
    return {method: [run.seed for run in runs] for method, runs in gathered(list(paths)).methods.items()}


@pytest.mark.parametrize("name", ["adafed-seed-0", "a", "elsewhere/AdaFed/seed-0"])
@pytest.mark.parametrize("rounds", [4, 10, 25])
def test_a_studys_methods_keep_their_runs_whatever_lies_beside_them(tmp_path: Path, name: str, rounds: int) -> None:
    study = described_study(tmp_path / "first")
    label = gathered([study / "AdaFed" / "seed-0"]).runs[0].method
    describe_study(study, "A title", {"AdaFed": label}, [])
    whole = gathered([study])
    made_up_run(study / name, rounds=rounds, level=0.5)
    own = (study / "AdaFed" / "seed-0" / "config.toml").read_text().replace("rounds = 10", f"rounds = {rounds}")
    (study / name / "config.toml").write_text(own)
    report = gathered([study])
    for method, runs in whole.methods.items():
        assert [run.source for run in report.methods[method]] == [run.source for run in runs]
    told = [note for note in report.notes if note.startswith(str(study / name)) and note.endswith("is left out")]
    assert len(told) + len(report.methods) - len(whole.methods) == 1  # told of, or a row of its own


@pytest.mark.parametrize(("seed", "rate"), [(7, "1.0"), (0, "3.0")])
def test_another_run_in_a_studys_folder_is_a_row_of_its_own(tmp_path: Path, seed: int, rate: str) -> None:
    study = described_study(tmp_path / "first")
    stray = made_up_run(study / "stray", seed=seed)
    own = (study / "AdaFed" / "seed-0" / "config.toml").read_text()
    text = own.replace("seed = 0", f"seed = {seed}", 1).replace("rate = 1.0", f"rate = {rate}")
    (stray / "config.toml").write_text(text)
    label = gathered([stray]).runs[0].method
    describe_study(study, "A title", {"AdaFed": label}, [])
    expected = {"FedAvg": [0, 1, 2], label: [0, 1, 2], f"{label} ({stray})": [seed]}
    assert seeds_of(study) == expected


def test_a_copy_is_known_whatever_the_study_calls_its_method(tmp_path: Path) -> None:
    study = described_study(tmp_path / "first")
    describe_study(study, "A title", {"AdaFed": "ours, of that day"}, [])
    own = (study / "AdaFed" / "seed-1" / "config.toml").read_text()
    stray = made_up_run(study / "longer", seed=1, rounds=25)
    (stray / "config.toml").write_text(own.replace("rounds = 10", "rounds = 25"))
    assert seeds_of(study) == {"FedAvg": [0, 1, 2], "ours, of that day": [0, 1, 2]}
    (note,) = gathered([study]).notes
    assert note == (f"{stray} repeats {study / 'AdaFed' / 'seed-1'} with 25 rounds instead of 10 and is left out")


def test_a_run_named_beside_a_study_does_not_rename_its_methods(tmp_path: Path) -> None:
    study = described_study(tmp_path / "first")
    longer = made_up_run(tmp_path / "longer", rounds=25)
    label = gathered([longer]).runs[0].method
    describe_study(study, "A title", {"AdaFed": label}, [])
    for paths in ((study, longer), (longer, study)):
        assert seeds_of(*paths) == {"FedAvg": [0, 1, 2], label: [0, 1, 2], f"{label} ({longer})": [0]}


def test_what_is_named_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = described_study(tmp_path / "first")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(study)
    once = seeds_of(study)
    run = study / "FedAvg" / "seed-0"
    others = [study, Path("first"), Path("link"), run, Path("first/AdaFed"), Path("first/../first/FedAvg/seed-0")]
    for other in others:
        for paths in ([study, other], [other, study]):
            report = gathered(paths)
            assert {method: [one.seed for one in runs] for method, runs in report.methods.items()} == once
            assert sum(note.endswith("is left out") for note in report.notes) == 1
            assert report.title == "A title"
    assert len(gathered([run, run, Path("first/FedAvg/seed-0")]).runs) == 1
    assert len(gathered([study / "FedAvg", run]).runs) == 3


def test_a_kept_file_named_twice_counts_once(tmp_path: Path) -> None:
    whole = gathered([described_study(tmp_path / "study")])
    runs = [StudyRun(run.method, load_kept(Path(run.source)), Path(run.source)) for run in whole.runs]
    keep(kept_from("kept", ["mean"], runs, {}), tmp_path / "kept.json")
    assert len(gathered([tmp_path / "kept.json"] * 2).runs) == len(runs)


def test_kept_results_give_what_they_have_and_say_what_is_missing(tmp_path: Path) -> None:
    made_up_study(tmp_path / "study", {"FedAvg": 0.4, "AdaFed": 0.5})
    whole = gathered([tmp_path / "study"])
    runs = [StudyRun(run.method, load_kept(Path(run.source)), Path(run.source)) for run in whole.runs]
    keep(kept_from("kept", ["mean"], runs, {"profile": "laptop"}), tmp_path / "kept.json")
    kept = gathered([tmp_path / "kept.json"])
    assert kept.values("AdaFed", "worst_10") == pytest.approx(whole.values("AdaFed", "worst_10"), abs=1e-3)
    assert any("kept results hold summaries only" in doubt.text for doubt in doubts(kept))
    assert "not recorded in these runs: Jain" in page(kept)
    assert 'id="clients"' not in page(kept)


def test_a_run_that_has_begun_gets_a_page(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run", rounds=1, every=5, asked=10)
    text = page(gathered([folder]))
    assert "only 1 of 10 rounds done" in text
    with sqlite3.connect(folder / "rounds.sqlite") as database:
        database.execute("DELETE FROM evaluations")
    assert "No round has been evaluated yet" in page(gathered([folder]))
    (folder / "rounds.sqlite").unlink()
    assert "No round has been evaluated yet" in page(gathered([folder]))


def cut_short(folder: Path) -> None:
    file = folder / "rounds.sqlite"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def no_database(folder: Path) -> None:
    (folder / "rounds.sqlite").write_text("not a database, whatever the name of the file says" * 100)


def no_toml(folder: Path) -> None:
    (folder / "config.toml").write_bytes(b"\xff\xfe rounds = [")


def other_notes(folder: Path) -> None:
    with sqlite3.connect(folder / "rounds.sqlite") as database:
        database.execute("UPDATE rounds SET notes = '{' WHERE round = 2")


def strange_accuracy(folder: Path) -> None:
    with sqlite3.connect(folder / "rounds.sqlite") as database:
        database.execute("UPDATE evaluations SET accuracy = 'much' WHERE client = 'a'")


@pytest.mark.parametrize("damage", [cut_short, no_database, no_toml, other_notes, strange_accuracy])
def test_a_damaged_run_is_told_in_a_sentence(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = made_up_run(tmp_path / "study" / "AdaFed" / "seed-0", rounds=60)
    damage(folder)
    with pytest.raises(AdafedError) as told:
        gathered([folder])
    assert "\n" not in str(told.value)
    made_up_run(tmp_path / "study" / "AdaFed" / "seed-1", seed=1)
    report = gathered([tmp_path / "study"])
    assert [run.seed for run in report.runs] == [1]
    assert any(doubt.text.startswith("left out: ") for doubt in doubts(report))


@pytest.mark.parametrize("content", ["", "[]", '{"labels": 3}', '{"labels": {"a": 3}}', "{"])
def test_what_is_missing_or_strange_beside_the_rows_is_left_open(tmp_path: Path, content: str) -> None:
    folder = made_up_run(tmp_path / "run")
    for name in ("labels.json", "run.json"):
        (folder / name).write_text(content)
    (run,) = gathered([folder]).runs
    assert run.clients is not None
    assert run.clients.labels is None
    assert run.checksum is None
    assert page(gathered([folder]))


def test_an_empty_folder_and_nothing_at_all_are_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "not-there"):
        with pytest.raises(AdafedError, match=str(path)):
            gathered([path])
    (tmp_path / "kept.json").write_text(json.dumps({"format": 1, "title": "", "columns": [], "runs": [], "told": {}}))
    with pytest.raises(AdafedError, match="no evaluations yet"):
        gathered([tmp_path / "kept.json"])


def test_against_must_be_there(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run")
    with pytest.raises(AdafedError, match="--against"):
        gathered([folder], against="nobody")
    assert gathered([Named(folder, "mine")], against="mine").reference == "mine"


def test_a_run_of_the_users_own_rule_is_read_without_it(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run")
    text = (folder / "config.toml").read_text().replace('name = "adafed"', 'name = "nowhere:Rule"')
    (folder / "config.toml").write_text(text)
    (run,) = gathered([folder]).runs
    assert run.method == "nowhere:Rule"
    assert any("cannot be checked here" in text for text in run.warnings)
