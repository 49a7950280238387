"""The search space: the paper's grid for each rule, and one grid of server rates for all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import adafed
from adafed import paper
from adafed.config.configuration import Config, config_from
from adafed.config.loading import load_config
from adafed.errors import AdafedError
from adafed.runs.summary import RunSummary, summarise
from adafed.studies.tune import (
    MEMORIES,
    MOMENTA,
    RATES,
    Bench,
    Trial,
    front,
    ranked,
    search_table,
    server_grid,
    space,
    tune,
)


def test_every_rule_is_searched_over_the_same_server_rates() -> None:
    assert {tuple(space(rule)["server.rate"]) for rule in adafed.rules()} == {RATES}


def test_a_value_given_twice_is_tried_once() -> None:
    assert space("fedavg", rates=(1.0, 0.3, 1.0))["server.rate"] == [1.0, 0.3]


def test_the_grids_are_the_papers() -> None:
    papers = {"adafed": ("AdaFed", "gamma"), "qffl": ("q-FFL", "q"), "term": ("TERM", "t"), "afl": ("AFL", "step"),
              "fedmgda+": ("FedMGDA+", "epsilon")}  # fmt: skip
    for rule, (method, option) in papers.items():
        (values,) = paper.grid(method).values()
        assert tuple(space(rule)[f"rule.{option}"]) == tuple(values)


CONFIG = config_from({
    "rounds": 6,
    "data": {"name": "synthetic", "clients": 4, "samples": 20, "features": 4, "classes": 2},
    "model": {"name": "logistic"},
    "split": {"validation": 0.2, "test": 0.2},
    "evaluation": {"every": 1},
    "rule": {"name": "fedavg"},
    "run": {"workers": 0},
})  # fmt: skip


def trial(mean: float, worst: float) -> Trial:
    score: dict[str, Any] = {"mean": mean, "worst_10": worst}
    return Trial({}, (RunSummary(Path(), CONFIG, "", 1, False, {}, score),))


def test_each_objective_has_its_order() -> None:
    trials = steady, fairest, best = trial(79.5, 60.0), trial(70.0, 65.0), trial(80.0, 50.0)
    assert ranked(trials, "mean")[0] is best
    assert ranked(trials, "worst_10")[0] is fairest
    assert ranked(trials, "fair") == [steady, best, fairest]  # within a point of the best mean, the fairest
    assert front([*trials, trial(69.0, 64.0)]) == list(trials)


def test_rungs_send_a_third_on(tmp_path: Path) -> None:
    rates = (0.01, 0.1, 1.0, 3.0)
    rounds: dict[str, int] = {}

    def watch(run: Any, round_: int, record: Any) -> None:
        rounds[run.method] = round_

    search = tune(CONFIG, tmp_path, rates=rates, objective="mean", rungs=(2,), watch=watch)
    assert sorted(rounds.values()) == [2, 2, 6, 6]
    assert [trial.rounds for trial in search.trials] == [6, 6, 2, 2]
    assert search.best[0].rounds == 6
    assert summarise(search.best[0].scores[0].path).rounds == 6  # an extended run is read to its end
    assert "6 rounds" in search_table(search, "mean").rows[0].label
    rounds.clear()
    again = tune(CONFIG, tmp_path, rates=rates, objective="mean", rungs=(2,), watch=watch)
    assert rounds == {}  # nothing is trained twice
    assert again == search


def test_trials_of_another_experiment_are_not_read(tmp_path: Path) -> None:
    tune(CONFIG, tmp_path, rates=(1.0,))
    shorter = CONFIG.changed(local={"lr": 2.0}, rounds=CONFIG.rounds - 1)
    with pytest.raises(AdafedError, match=r"holds another experiment: local\.lr"):
        tune(shorter, tmp_path, rates=(1.0,))


def test_a_grid_may_have_whole_numbers_and_deep_keys(tmp_path: Path) -> None:
    grid = {"local.epochs": (1, 2), "server.optimizer.momentum": (0.5,)}
    config = CONFIG.changed(rounds=2, server={"optimizer": {"name": "sgd"}})
    search = tune(config, tmp_path, rates=(1.0,), grid=grid)
    assert sorted(one.scores[0].config.local.epochs for one in search.trials) == [1, 2]


def test_a_trial_without_an_evaluation_wins_nothing(tmp_path: Path) -> None:
    config = CONFIG.changed(evaluation={"every": 4})
    tune(config, tmp_path, rates=(0.1, 1.0))
    with pytest.raises(AdafedError, match=r"evaluation\.every = 4: a trial was not evaluated by round 2; set it lower"):
        tune(config.changed(rounds=2), tmp_path, rates=(0.1, 1.0))


def test_jobs_change_nothing(tmp_path: Path) -> None:
    alone = tune(CONFIG, tmp_path / "one", rates=(0.1, 1.0), objective="mean")
    beside = tune(CONFIG, tmp_path / "two", rates=(0.1, 1.0), objective="mean", jobs=2)
    assert [t.score("mean") for t in alone.trials] == [t.score("mean") for t in beside.trials]


@pytest.mark.parametrize("rungs", [(6,), (3, 2), (0,)])
def test_rungs_must_rise(rungs: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="they must rise"):
        tune(CONFIG, tmp_path, rungs=rungs)


def test_picked_trials_are_points_of_the_grid(tmp_path: Path) -> None:
    config: Config = CONFIG.changed(rule={"name": "term"}, rounds=2)
    search = tune(config, tmp_path, rates=(0.1, 1.0), trials=3)
    assert 1 <= len(search.trials) <= 3
    assert all(one.choice["rule.t"] in space("term")["rule.t"] for one in search.trials)
    with pytest.raises(AdafedError, match="give one of them"):
        tune(config, tmp_path, trials=3, rungs=(1,))


def test_every_rule_gets_the_same_grid_of_the_server() -> None:
    sampled = CONFIG.changed(cohort={"fraction": 0.5})
    assert server_grid(sampled) == (MOMENTA, MEMORIES)
    assert server_grid(sampled.changed(cohort={"fraction": 1.0})) == (MOMENTA, ())  # there is nobody to remember
    assert server_grid(sampled.changed(server={"optimizer": "adam"})) == ((), MEMORIES)
    assert server_grid(sampled.changed(rule="fedvarp")) == (MOMENTA, ())
    found = space("fedavg", (1.0,), {}, *server_grid(sampled))
    assert found == {"server.rate": [1.0], "server.optimizer.momentum": [0.0, 0.9], "memory.rounds": [0, "all"]}


def test_momentum_and_memory_are_tried(tmp_path: Path) -> None:
    config = CONFIG.changed(cohort={"fraction": 0.5})
    search = tune(config, tmp_path, rates=(1.0,), grid={}, momenta=(0.0, 0.9), memories=(0, "all"))
    assert len(search.trials) == 4
    assert len({trial.score("mean") for trial in search.trials}) > 1
    configs = [load_config(path) for path in tmp_path.glob("*/seed-1000/config.toml")]
    assert {(one.memory.rounds, one.server.optimizer.options["momentum"]) for one in configs} == {
        (0, 0.0), (0, 0.9), ("all", 0.0), ("all", 0.9)
    }  # fmt: skip


def test_a_search_that_is_repeated_judges_its_rungs_as_it_did(tmp_path: Path) -> None:
    config = CONFIG.changed(evaluation={"every": 4})  # round 3 is evaluated because it is the rung's last
    given: dict[str, Any] = {"rates": (0.01, 0.1, 1.0, 3.0), "objective": "mean", "rungs": (3,)}
    bench = Bench(config, tmp_path, (1000,), 1, lambda *_: None)
    points = [{"server.rate": rate} for rate in given["rates"]]

    def judged() -> list[tuple[float, int]]:
        return [(trial.score("mean"), trial.rounds) for trial in bench.tried(points, 3)]

    at_first = judged()
    search = tune(config, tmp_path, **given)
    assert judged() == at_first
    assert tune(config, tmp_path, **given) == search
    found = list(tmp_path.glob("*/*/rungs.json"))
    assert len(found) == len(points)
    for kept in found:
        kept.write_text('{"3": 1}')  # what is no such file is as none, and the run itself has no such evaluation now
    with pytest.raises(AdafedError, match="a trial was not evaluated by round 3"):
        tune(config, tmp_path, **given)


def test_what_a_removed_run_said_is_not_believed_of_the_next(tmp_path: Path) -> None:
    points = [{"server.rate": 1.0}]

    def judged(lr: float) -> float:
        config = CONFIG.changed(local={"lr": lr})
        return Bench(config, tmp_path, (1000,), 1, lambda *_: None).tried(points, 3)[0].score("mean")

    at_first = judged(0.5)
    shutil.rmtree(next(tmp_path.glob("*/seed-1000")))
    assert judged(1e-9) != at_first


def test_a_safe_step_is_searched_without_momentum() -> None:
    assert server_grid(CONFIG.changed(server={"step": "safe"}))[0] == ()
