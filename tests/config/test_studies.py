"""Studies: methods and profiles on top of one experiment."""

from __future__ import annotations

from typing import Any

import pytest

from adafed.config.studies import study_from
from adafed.errors import AdafedError

CONTENT: dict[str, Any] = {
    "rounds": 10,
    "rule": {"name": "adafed", "gamma": 2.0},
    "methods": {"A": {"rule": {"gamma": 3.0}}, "B": {"rule": "fedavg"}},
    "profiles": {"tiny": {"rounds": 2, "seeds": [4], "methods": {"A": {"server": {"rate": 0.5}}}}},
    "study": {"seeds": [1, 2]},
}


def test_a_method_changes_only_what_it_names() -> None:
    study = study_from(CONTENT, "some")
    assert study.config("A").rule.options == {"gamma": 3.0}
    assert study.config("A").rounds == 10


def test_another_rule_does_not_inherit_the_first_ones_options() -> None:
    assert study_from(CONTENT, "some").config("B").rule.options == {}


def test_a_profile_changes_experiment_seeds_and_methods() -> None:
    study = study_from(CONTENT, "some", "tiny")
    assert study.seeds == (4,)
    assert study.config("A").rounds == 2
    assert study.config("A").server.rate == 0.5
    assert study.config("B").server.rate == 1.0


def test_a_profile_may_begin_from_another_and_add_a_method() -> None:
    more = {"from": "tiny", "seeds": [5], "methods": {"A": {"rule": {"gamma": 1.0}}, "C": {"rule": "fedavg"}}}
    study = study_from({**CONTENT, "profiles": {**CONTENT["profiles"], "more": more}}, "some", "more")
    assert list(study.methods) == ["A", "B", "C"]
    assert study.seeds == (5,)
    assert study.config("A").rounds == 2
    assert study.config("A").server.rate == 0.5
    assert study.config("A").rule.options == {"gamma": 1.0}


def test_a_profile_does_not_bring_back_a_method_that_a_variant_left_out() -> None:
    content = {**CONTENT, "variants": {"one": {"rows": ["B"]}, "own": {"methods": {"D": {"rule": "fedavg"}}}}}
    for variant, methods in (("one", ["B"]), ("own", ["D"])):
        assert list(study_from(content, "some", "tiny", variant).methods) == methods


def test_a_profile_adds_its_methods_to_the_rows_of_a_variant_and_not_to_a_table_of_its_own() -> None:
    content = {
        **CONTENT,
        "variants": {"one": {"rows": ["B"]}, "own": {"methods": {"D": {"rule": "fedavg"}}}},
        "profiles": {
            "more": {
                "methods": {"C": {"rule": "fedavg"}, "D": {"rule": "fedavg", "server": {"rate": 0.5}}},
                "variants": {"own": {"methods": {"E": {"rule": "fedavg"}}}},
            }
        },
    }
    assert list(study_from(content, "some", "more", "one").methods) == ["B", "C", "D"]
    own = study_from(content, "some", "more", "own")
    assert list(own.methods) == ["D", "E"]
    assert own.config("D").server.rate == 0.5


def test_settings_have_the_last_word_but_on_the_seed_of_a_run() -> None:
    study = study_from(CONTENT, "some", "tiny")
    assert study.config("A", 9, ["rounds=7"]).rounds == 7
    assert study.config("A", None, ["seed=3"]).seed == 3
    with pytest.raises(AdafedError, match=r"--set seed=3 is at odds with seed 9; give one of them"):
        study.config("A", 9, ["seed=3"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"study": {"colour": 1}}, "study.colour is unknown"),
        ({"study": {"seeds": []}}, "study.seeds = []"),
        ({"study": {"seeds": ["a"]}}, "study.seeds = ['a']"),
        ({"study": {"seeds": [1, 1]}}, "study.seeds = [1, 1]; it must be a list of different whole numbers"),
        ({"study": {}, "seed": "x"}, "seed = 'x'"),
        ({"methods": {"A": {"seed": 7}}}, "methods.A.seed = 7: all methods have the seeds of the study"),
        ({"study": {"notes": 5}}, "study.notes = 5; it must be a list of sentences"),
        ({"study": {"notes": [1]}}, "study.notes = [1]; it must be a list of sentences"),
        ({"study": {"columns": "mean"}}, "study.columns = 'mean'; it must be a list of measures"),
        ({"study": {"columns": [["mean"]]}}, "study.columns = [['mean']]; it must be a list of measures"),
        ({"study": {"columns": ["speed"]}}, "study.columns names 'speed'"),
        ({"methods": {"A": {"rule": {"gamma": -1.0}}}}, "methods.A: rule.gamma is -1.0"),
        ({"methods": {"A": {"colour": 1}}}, "methods.A: colour is unknown"),
        ({"methods": 3}, "methods = 3; it must be a table"),
        ({"rounds": 0}, "rounds = 0"),
    ],
)
def test_mistakes_are_told_before_anything_runs(change: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError) as error:
        study_from(CONTENT | change, "some")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        ({"from": "huge"}, "some has no profile 'huge'"),
        ({"from": "p"}, "profiles.p.from = 'p'; it must name another profile, without a circle"),
        ({"from": 3}, "profiles.p.from = 3; it must name another profile"),
        ({"methods": {"a": {"server": {"rate": 1.0}}}}, "methods.a is new and has no rule; the methods are 'A', 'B'"),
        ({"methods": {"A": 3}}, "A = 3; it must be a table"),
    ],
)
def test_mistakes_of_a_profile_are_told(profile: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError) as error:
        study_from(CONTENT | {"profiles": {"p": profile}}, "some", "p")
    assert told in str(error.value)
