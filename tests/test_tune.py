"""The search space: the paper's grid for each rule, and one grid of server rates for all."""

from __future__ import annotations

import adafed
from adafed import paper
from adafed.tune import RATES, space


def test_every_rule_is_searched_over_the_same_server_rates() -> None:
    assert {tuple(space(rule)["server.rate"]) for rule in adafed.rules()} == {RATES}


def test_the_grids_are_the_papers() -> None:
    papers = {"adafed": ("AdaFed", "gamma"), "qffl": ("q-FFL", "q"), "term": ("TERM", "t"), "afl": ("AFL", "step"),
              "fedmgda+": ("FedMGDA+", "epsilon")}  # fmt: skip
    for rule, (method, option) in papers.items():
        (values,) = paper.grid(method).values()
        assert tuple(space(rule)[f"rule.{option}"]) == tuple(values)
