"""Every table and figure that can be reproduced, with its cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adafed.config.configuration import Config
from adafed.config.studies import Study
from adafed.paper.reproduce.targets import here, source_study, targets
from adafed.report.figures import FIGURES

PROFILES = ("paper", "laptop")
CORES = 2
OVERHEAD = 1.6  # losses before training, rho and evaluation, in units of the training itself


def hours(study: Study, profile: str) -> float | None:
    """Of one seed on two cores, from the samples of a round and what one costs on a core."""
    cost = study.cost.get(profile)
    if cost is None:
        return None
    total = 0.0
    for method in study.methods:
        config = study.config(method)
        work = math.prod(rule.work for rule in config.parts.client_rules)
        total += _rounds(config) * config.local.epochs * cost["samples"] * cost["milliseconds"] * work
    return OVERHEAD * total / 3.6e6 / CORES


def _rounds(config: Config) -> float:
    """As many as a round's samples are trained on: a client rule may plan others."""
    share, rounds = config.cohort.fraction, float(config.rounds)
    clients = config.partition.options.get("clients") if config.partition else None
    if clients is None or share is None:
        return rounds
    for rule in config.parts.client_rules:
        rounds = rule.trained_rounds(int(rounds), clients, share)
    return rounds


def listing() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Every table and figure: what it is, its data, hours at one seed on two cores, and whether the data is here."""
    rows: list[tuple[str, ...]] = []
    for one in targets().values():
        printed = one.printed
        assert printed is not None
        studies = [(profile, [one.study(profile)]) for profile in PROFILES]
        title = f"{studies[0][1][0].title} ({printed.label})"
        rows.append((one.name, title, *_costs(studies)))
    for drawing in FIGURES.values():
        studies = [(p, [source_study(source, p) for source in drawing.sources]) for p in PROFILES]
        rows.append((drawing.name, drawing.what, *_costs(studies)))
    return ("name", "in the paper", "data", "hours, paper", "hours, laptop", "data here"), rows


def _costs(studies: Sequence[tuple[str, list[Study]]]) -> tuple[str, ...]:
    needed = list(dict.fromkeys(study.config().data.name for study in studies[0][1]))
    told = [sum(hours(study, profile) or 0.0 for study in some) for profile, some in studies]
    present = [study.config().data.name for study in studies[0][1] if here(study)]
    answer = "yes" if set(present) == set(needed) else f"only {present[0]}" if present else "no"
    return (", ".join(needed) or "none", *(_told(value) for value in told), answer)


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else "< 0.1"
