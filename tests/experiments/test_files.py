"""The experiment files say what the paper says, in every profile and variant."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import adafed
from adafed import paper
from adafed.client_rules import Ditto
from adafed.config.studies import load_study
from adafed.paper.reproduce import Target, hours, targets

FOLDER = Path(adafed.__file__).parent / "experiments"
FILES = sorted(file for file in FOLDER.glob("*.toml") if file.stem not in ("demo", "attack"))  # no paper's
TABLES = [target for target in targets().values() if not target.sweep]
BEYOND = {"FedFV", "AdaFed (default)"}  # rows that the paper does not print
OURS = {"q-FFL": "q", "FedMGDA+": "epsilon", "TERM": "t", "AdaFed": "gamma"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_profile_and_variant_is_a_valid_study(file: Path) -> None:
    content = tomllib.loads(file.read_text())
    assert {"paper", "laptop", "smoke"} <= set(content["profiles"])
    for profile in content["profiles"]:
        for variant in (None, *content.get("variants", {})):
            study = load_study(file, profile, variant)
            assert study.methods
            assert study.name == (file.stem if variant is None else f"{file.stem}-{variant}")


@pytest.mark.parametrize("target", TABLES, ids=lambda target: target.name)
def test_the_paper_profile_is_what_the_paper_says(target: Target) -> None:
    study = target.study("paper")
    assert target.printed is not None
    said = target.printed.setup
    for method in study.methods:
        config = study.config(method)
        found = {
            "rounds": config.rounds,
            "learning_rate": config.local.lr,
            "local_epochs": config.local.epochs,
            "batch": config.local.batch_size,
            "clients": config.partition.options.get("clients", 3) if config.partition else None,
            "participation": config.cohort.fraction or (1.0 if config.cohort.count is None else None),
            "decay": config.local.lr_decay,
            "momentum": config.local.momentum,
            "t1": config.to_dict()["fedcorr"]["iterations"] if "fedcorr" in config.to_dict() else said["t1"],
        }
        assert found.keys() == said.keys() - {"dataset", "split", "model", "tail"}  # which are words, or a column's
        for key, value in found.items():
            if said[key] is not None:
                assert value == said[key], (method, key)
            elif key in ("decay", "momentum", "t1"):  # where nothing is said there is none, but FedFA's own momentum
                assert value == {"decay": 1.0, "momentum": 0.9 if method == "FedFA" else 0.0, "t1": None}[key]
        assert config.evaluation.improvement_every == 1
        assert config.data.name == said["dataset"]
    assert len(study.seeds) == 5


@pytest.mark.parametrize("target", TABLES, ids=lambda target: target.name)
def test_every_row_of_the_paper_is_run_with_its_best_hyper_parameters(target: Target) -> None:
    study = target.study("paper")
    assert target.printed is not None
    beside = {method: study.paper.get(method, method) for method in study.methods}
    assert set(beside.values()) - BEYOND == set(target.printed.rows)
    assert [row for row in beside.values() if row == "AdaFed"] == ["AdaFed", "AdaFed"]
    for method, row in beside.items():
        if row in BEYOND:
            continue
        config, best = study.config(method), paper.best(target.experiment, row)
        for key, value in (best or {}).items():
            if row in OURS:
                assert config.rule.options[OURS[row]] == value
            elif row == "AFL":
                assert config.rule.options["step"] == value
            elif row == "Ditto":
                (ditto,) = config.parts.client_rules
                assert isinstance(ditto, Ditto)
                assert ditto.strength == value
            elif key == "gamma_c":
                assert config.local.momentum == value
            elif key == "gamma_s":
                assert config.server.optimizer.options["momentum"] == value
            else:
                assert config.rule.options[key] == value


@pytest.mark.parametrize("target", TABLES, ids=lambda target: target.name)
def test_the_two_adafed_rows_are_the_printed_algorithm_and_our_own(target: Target) -> None:
    study = target.study("paper")
    printed, own = study.config("AdaFed as printed"), study.config("AdaFed")
    assert (printed.rule.options["scale"], printed.server.loss) == ("paper", "after")
    one_step = own.local.batch_size == "full" and own.local.epochs == 1  # its running loss is the one before it
    assert (own.rule.options["scale"], own.server.loss) == ("mean", "running" if one_step else "before")
    assert printed.rule.options["gamma"] == own.rule.options["gamma"]


@pytest.mark.parametrize("target", TABLES, ids=lambda target: target.name)
def test_a_table_in_the_laptop_profile_is_planned_for_three_hours_at_most(target: Target) -> None:
    study = target.study("laptop")
    planned = hours(study, "laptop")
    assert planned is not None
    assert planned <= 3


def test_what_the_paper_says_of_the_images_and_roles_of_three_set_ups() -> None:
    cifar = load_study(FOLDER / "cifar10-1.toml", "paper").config("FedAvg").split
    assert (cifar.pool, cifar.validation, cifar.test) == ("train", 0.0, 0.2)  # 40,000 and 10,000 of 50,000
    roles = load_study(FOLDER / "shakespeare-1.toml", "paper").config("FedAvg").partition
    larger = load_study(FOLDER / "shakespeare-2.toml", "paper").config("FedAvg").partition
    assert roles is not None
    assert larger is not None
    assert (roles.options["large"], roles.options["large_minimum"]) == (20, 10001)
    assert (larger.options["clients"], larger.options["minimum"]) == (20, 10001)


@pytest.mark.parametrize("name", ["cifar10-1", "fashion"])
def test_the_settings_of_fedfvs_records(name: str) -> None:
    study = load_study(FOLDER / f"{name}.toml", "fedfv-record")
    config = study.config("FedAvg")
    assert study.seeds == (0, 12, 37, 119, 568)
    assert (config.local.batch_size, config.local.loss) == ("full", "double-softmax")
    assert (config.split.validation, config.split.test) == (0.1, 0.1)
