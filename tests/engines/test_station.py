"""One process's work: units, rows, and what is kept between rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from adafed import AdafedError
from adafed.config.configuration import Config, config_from
from adafed.config.merging import merged
from adafed.engines.station import COHORTS_KEPT, Station
from adafed.engines.units import AskUnit, KeptFile, MeasureUnit, TrainUnit
from adafed.training.local import Assignment


def experiment(**changes: Any) -> Config:
    base = {
        "data": {"name": "synthetic", "clients": 50, "samples": 20, "features": 5, "classes": 3},
        "model": {"name": "mlp", "hidden": [6]},
        "cohort": {"count": 2},
        "run": {"workers": 0},
    }
    return config_from(merged(base, changes))


def work(*clients: int) -> tuple[Assignment, ...]:
    return tuple(Assignment(client, 1, 0.1) for client in clients)


def test_rows_are_written_where_they_belong() -> None:
    station = Station(experiment())
    apart, together = torch.full((2, 6, station.visiting.width), 9.0)
    station.train(TrainUnit(work(1, 2, 3), (4, 0, 2), True, False), station.initial, apart)
    station.train(TrainUnit(work(1, 2, 3), (1, 2, 3), True, False), station.initial, together)
    assert torch.equal(apart[[4, 0, 2]], together[[1, 2, 3]])
    assert (apart[[1, 3, 5]] == 9.0).all()
    assert (together[[0, 4, 5]] == 9.0).all()


def test_a_rule_can_be_told_what_a_model_does_on_samples_nobody_trains_on() -> None:
    told = experiment(server={"loss": "validation"}, split={"validation": 0.2})
    station, plain = Station(told), Station(experiment(split={"validation": 0.2}))
    rows, same = torch.zeros(2, 3, station.visiting.width)
    reports = station.train(TrainUnit(work(1, 2, 3), (0, 1, 2), False, False), station.initial, rows)
    without = plain.train(TrainUnit(work(1, 2, 3), (0, 1, 2), False, False), plain.initial, same)
    scores = station.measure(MeasureUnit((1, 2, 3), "validation"), station.initial)
    assert [report.held_out for report in reports] == [score.loss for score in scores]
    assert [report.held_out for report in without] == [None] * 3
    assert torch.equal(rows, same)


def test_who_has_no_such_samples_tells_the_loss_on_its_own() -> None:
    few = {"data": {"name": "synthetic", "clients": 5, "samples": 2, "features": 5, "classes": 3}}
    station = Station(experiment(**few, server={"loss": "validation"}, split={"validation": 0.01}))
    assert len(station.federation.client(1).validation) == 0
    (report,) = station.train(
        TrainUnit(work(1), (0,), True, False), station.initial, torch.zeros(1, station.visiting.width)
    )
    assert report.before is not None
    assert report.held_out == report.before.loss


def test_corrected_labels_are_trained_on_measured_on_and_answered_with() -> None:
    station = Station(experiment(fedcorr={"iterations": 1, "clean_rounds": 0}, rounds=50))
    right = station.federation.client(3).train.targets
    orders = {"fedcorr": {"labels": ((right + 1) % 3).tolist(), "suspected": True}}
    plain, corrected = torch.zeros(2, 1, station.visiting.width)
    reports = []
    for own, row in (({}, plain), (orders, corrected)):
        (report,) = station.train(TrainUnit(work(3), (0,), True, False, orders=(own,)), station.initial, row)
        (score,) = station.measure(MeasureUnit((3,), "train", orders=(own,)), station.initial)
        assert report.before == (score.loss, score.accuracy)
        assert station.ask(AskUnit(3, "fedcorr", own), station.initial)["labels"] == (
            orders["fedcorr"]["labels"] if own else right.tolist()
        )
        reports.append(report)
    assert not torch.equal(plain, corrected)
    assert reports[0].before != reports[1].before
    assert reports[0].told == {}
    assert reports[1].told["fedcorr"].keys() == {"dimension", "losses"}
    (score, plainly) = (station.measure(MeasureUnit((3,), "test", orders=o), station.initial) for o in ((orders,), ()))
    assert score == plainly


def test_a_personal_model_that_is_gone_is_told(tmp_path: Path) -> None:
    station = Station(experiment(ditto={}))
    (tmp_path / "torn.safetensors").write_bytes(b"x")
    for name in ("gone", "torn"):
        unit = MeasureUnit((0,), "test", True, (KeptFile(str(tmp_path / f"{name}.safetensors")),))
        with pytest.raises(AdafedError, match=rf"{name}\.safetensors is missing or damaged: restore it"):
            station.measure(unit, station.initial)


def test_the_losses_before_and_after_are_those_of_the_models() -> None:
    station = Station(experiment())
    updates = torch.zeros(3, station.visiting.width)
    reports = station.train(TrainUnit(work(1, 2, 3), (0, 1, 2), True, True), station.initial, updates)
    for k, report in enumerate(reports):
        for measured, model in ((report.before, station.initial), (report.after, station.initial - updates[k])):
            (alone,) = station.measure(MeasureUnit((report.client,), "train"), model)
            assert measured is not None
            assert measured.loss == pytest.approx(alone.loss, rel=1e-6)
            assert measured.accuracy == pytest.approx(alone.accuracy)


def test_memory_follows_the_cohort_not_the_federation() -> None:
    station = Station(experiment())
    updates = torch.zeros(1, station.visiting.width)
    for client in range(50):
        station.train(TrainUnit(work(client), (0,), True, False), station.initial, updates)
    assert len(station._cache) == 2 * COHORTS_KEPT
    station.measure(MeasureUnit(tuple(range(50)), "test"), station.initial)
    assert {part for _, part in station._cache} == {"train"}


def test_a_small_federation_is_kept_within_the_budget() -> None:
    station = Station(experiment(cohort={"count": 5}))
    station.measure(MeasureUnit(tuple(range(50)), "test"), station.initial)
    assert len(station._cache) == 50
    large = Station(experiment(cohort={"count": 5}, data={"features": 20_000}, run={"cache_mb": 3}))
    large.measure(MeasureUnit(tuple(range(10)), "test"), large.initial)
    assert 1 <= len(large._cache) < 10
