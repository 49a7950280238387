"""What `memory.rounds = "auto"` comes to."""

from typing import Any

import pytest

from adafed.config.configuration import config_from
from adafed.config.loading import load_kept
from adafed.rounds.round import ServerHalf
from adafed.server.row_files import RowStore

TEN = [str(k) for k in range(10)]


def remembered(length: int = 1000, **sections: Any) -> tuple[Any, int]:
    found = ServerHalf.of(config_from({"cohort": {"count": 3}} | sections), TEN, length=length).remember
    return found.rounds, found.most


def test_adafed_is_shown_everyone_where_clients_are_drawn() -> None:
    assert remembered() == ("all", 0)
    assert remembered(cohort={"fraction": 0.5}) == ("all", 0)


@pytest.mark.parametrize("rule", ["fedavg", "term", "fedfv", {"name": "adafed", "preset": "paper"}])
def test_other_rules_and_the_method_as_printed_see_the_round(rule: Any) -> None:
    assert remembered(rule=rule) == (0, 0)


@pytest.mark.parametrize("cohort", [{}, {"fraction": 1.0}, {"count": 10}])
def test_it_is_off_where_everyone_takes_part(cohort: dict[str, Any]) -> None:
    assert remembered(cohort=cohort) == (0, 0)


def test_it_keeps_what_fits_the_budget_and_is_off_where_that_is_a_cohort() -> None:
    million = 2**20 // 4
    assert remembered(million, memory={"budget_mb": 10}) == ("all", 0)
    assert remembered(million, memory={"budget_mb": 9}) == ("all", 9)
    assert remembered(million, memory={"budget_mb": 9, "storage": "int8"}) == ("all", 0)
    assert remembered(million, memory={"budget_mb": 3}) == (0, 0)
    assert remembered(million, memory={"budget_mb": 9, "most": 5}) == ("all", 5)


def test_what_is_said_is_done() -> None:
    assert remembered(memory={"rounds": 0}) == (0, 0)
    assert remembered(memory={"rounds": 7}) == (7, 0)
    assert remembered(2**30, rule="fedavg", cohort={}, memory={"rounds": "all"}) == ("all", 0)


def test_a_run_from_before_there_was_a_memory_has_none(tmp_path: Any) -> None:
    (tmp_path / "config.toml").write_text("rounds = 3\n[cohort]\ncount = 3\n")
    assert load_kept(tmp_path).memory.rounds == 0
    (tmp_path / "config.toml").write_text('rounds = 3\n[memory]\nrounds = "auto"\n')
    assert load_kept(tmp_path).memory.rounds == "auto"


def test_auto_asks_for_what_is_still_true_and_nobody_else_does(tmp_path: Any) -> None:
    def truth(**section: Any) -> float:
        return ServerHalf.of(config_from({"cohort": {"count": 3}, "memory": section}), TEN, length=9).remember.truth

    assert truth() == 0.3
    assert truth(truth=0.8) == 0.8
    assert truth(rounds="all") == truth(rounds=3) == truth(truth=0.0) == 0.0
    assert truth(rounds="all", truth=0.5) == 0.5
    (tmp_path / "config.toml").write_text('rounds = 3\n[memory]\nrounds = "auto"\n')  # from before it did
    assert load_kept(tmp_path).memory.truth == 0.0
    (tmp_path / "config.toml").write_text('rounds = 3\n[memory]\nrounds = "all"\n')
    assert load_kept(tmp_path).memory.truth == "auto"


def test_a_rule_that_looks_back_by_itself_keeps_its_updates_where_the_run_does() -> None:
    store = RowStore("bfloat16")
    config = config_from({"cohort": {"count": 3}, "rule": "fedvarp", "memory": {"storage": "bfloat16"}})
    assert ServerHalf.of(config, TEN, store, 1000).remember.store is store


def test_auto_is_for_the_rules_that_are_best_with_everyone_round_by_round() -> None:
    config = config_from({"cohort": {"count": 3}, "fedcorr": {"group": 3}})
    half = ServerHalf.of(config, TEN, length=1000)
    first, last = half.memory(1), half.memory(config.rounds)
    assert (half.rule(1).name, first.rounds) == ("fedavg", 0)
    assert (half.rule(config.rounds).name, last.rounds) == ("adafed", "all")
    asked = ServerHalf.of(config.changed(memory={"rounds": "all"}), TEN, length=1000)
    assert asked.memory(1).rounds == "all"
