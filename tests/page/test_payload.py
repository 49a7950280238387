"""What the page draws is what the runs hold: unpacked, averaged and thinned as the page says."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from made_up import made_up_run, made_up_study

from adafed.page import gathered
from adafed.page import payload as module
from adafed.page.payload import MISSING, client_points, payload, sorted_accuracies
from adafed.runs.store import Store


def unpacked(text: str, kind: str) -> npt.NDArray[np.float64]:
    return np.frombuffer(base64.b64decode(text), dtype=f"<{kind}").astype(np.float64)


@pytest.mark.parametrize("tail", [False, True])
def test_the_lowest_tenth_of_a_sorted_curve_is_the_tables_worst_tenth(tmp_path: Path, tail: bool) -> None:
    report = gathered([made_up_study(tmp_path, {"FedAvg": 0.5}, clients=[str(k) for k in range(30)])], tail=tail)
    _, lines = sorted_accuracies(report.methods["FedAvg"], tail)
    assert lines[:, :3].mean(axis=1).tolist() == pytest.approx(report.values("FedAvg", "worst_10"))
    assert lines[:, -3:].mean(axis=1).tolist() == pytest.approx(report.values("FedAvg", "best_10"))
    assert lines.mean(axis=1).tolist() == pytest.approx(report.values("FedAvg", "mean"))


def test_clients_are_as_in_the_rows(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run")
    content = payload(gathered([folder]))
    (federation,) = content["federations"]
    (method,) = federation["methods"]
    (run,) = method["runs"]
    store = Store(folder / "rounds.sqlite", read_only=True)
    records = list(store.records(evaluated=True))
    store.close()
    told = unpacked(run["accuracies"], "u2").reshape(len(run["at"]), -1) / 100
    assert run["at"] == [record.round for record in records]
    for row, record in zip(told, records, strict=True):
        evaluation = record.evaluation()
        assert evaluation is not None
        assert row == pytest.approx([100 * (score.accuracy or 0) for _, score in evaluation.scores], abs=0.006)
    assert federation["ids"] == list("abcdefghij")
    assert federation["labels"][0] == ["0", 30, "1", 10]
    assert unpacked(method["drawn"], "u4").sum() == 50


def test_seeds_that_deal_the_samples_anew_are_apart_and_those_that_do_not_are_together(tmp_path: Path) -> None:
    made_up_study(tmp_path / "anew", {"FedAvg": 0.5, "AdaFed": 0.6})
    apart = payload(gathered([tmp_path / "anew"]))["federations"]
    assert [one["label"] for one in apart] == ["seed 0", "seed 1", "seed 2"]
    assert [len(one["methods"]) for one in apart] == [2, 2, 2]
    made_up_study(tmp_path / "same", {"FedAvg": 0.5}, checksum="a" * 64)
    (together,) = payload(gathered([tmp_path / "same"]))["federations"]
    assert together["label"] == "seeds 0, 1, 2"
    assert [len(one["runs"]) for one in together["methods"]] == [3]


def test_bands_span_the_seeds(tmp_path: Path) -> None:
    report = gathered([made_up_study(tmp_path, {"FedAvg": 0.5})])
    (method,) = payload(report)["methods"]
    curve = method["curves"]["mean"]
    assert curve["x"] == [2, 4, 6, 8, 10]
    for low, middle, high in zip(curve["low"], curve["y"], curve["high"], strict=True):
        assert low <= middle <= high
    assert sum(method["histogram"]) == pytest.approx(100, abs=0.01)


def test_long_curves_are_thinned_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = gathered([made_up_run(tmp_path / "run", rounds=45, every=1)])
    assert payload(report)["thinned"] == []
    monkeypatch.setattr(module, "POINTS", 10)
    monkeypatch.setattr(module, "CLIENT_NUMBERS", 0)
    content = payload(report)
    assert len(content["thinned"]) == 2
    (run,) = content["federations"][0]["methods"][0]["runs"]
    assert len(run["at"]) == client_points(report.runs) == module.CLIENT_POINTS
    assert run["at"][-1] == 45
    curve = content["methods"][0]["curves"]["norm"]
    assert len(curve["x"]) <= 10
    assert curve["x"][-1] == 45
    quantiles = content["methods"][0]["coefficients"]["quantiles"]
    (whole,) = [run.rounds for run in report.runs]
    assert whole is not None
    assert min(quantiles[0]) == pytest.approx(whole.coefficients[:, 0].min(), rel=1e-4)


def test_a_client_without_test_samples_is_missing(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run")
    store = Store(folder / "rounds.sqlite")
    with store._db:
        store._db.execute("UPDATE evaluations SET accuracy = NULL, loss = NULL, samples = 0 WHERE client = 'a'")
    store.close()
    (federation,) = payload(gathered([folder]))["federations"]
    (method,) = federation["methods"]
    assert np.isnan(unpacked(method["accuracy"], "f4")[0])
    assert unpacked(method["runs"][0]["accuracies"], "u2")[0] == MISSING
