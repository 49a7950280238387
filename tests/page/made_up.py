"""Runs that nobody trained: directories with the rows a run would have left, from accuracies that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adafed.config.configuration import config_from
from adafed.page.model import Report, Run
from adafed.rounds.records import Evaluation, Participant, RoundRecord, Scores
from adafed.runs.store import Store

HOSTILE = "<script>alert(1)</script>"
COHORT = 5


def made_up_run(
    path: Path,
    *,
    rule: str = "adafed",
    seed: int = 0,
    rounds: int = 10,
    asked: int | None = None,
    every: int = 2,
    clients: Sequence[str] = tuple("abcdefghij"),
    level: float = 0.6,
    dropped: Mapping[int, Mapping[str, str]] | None = None,
    notes: Mapping[int, Mapping[str, Any]] | None = None,
    checksum: str | None = None,
    labels: bool = True,
    skipped: Sequence[int] = (),
) -> Path:
    """Client k of K has about the accuracy `level` times (0.5 + k / 2K) at the end, less before."""
    random = np.random.default_rng([seed, len(clients), len(rule)])
    path.mkdir(parents=True)
    config = config_from({"name": path.parent.name, "seed": seed, "rounds": asked or rounds, "rule": {"name": rule}})
    (path / "config.toml").write_text(config.completed().to_toml())
    data = {"name": "digits", "clients": len(clients), "checksum": checksum or f"{seed:064d}"}
    facts = {"format": 1, "data": data, "seeds": {}, "trained_together": 1, "engine": "local",
             "versions": {"adafed": "0", "torch": "0"}}  # fmt: skip
    (path / "run.json").write_text(json.dumps(facts))
    if labels:
        held = {client: {str(k % 10): 30, str((k + 1) % 10): 10} for k, client in enumerate(clients)}
        (path / "labels.json").write_text(json.dumps({"format": 1, "part": "train", "labels": held}))
    store = Store(path / "rounds.sqlite")
    for t in range(1, rounds + 1):
        cohort = [clients[k] for k in sorted(random.permutation(len(clients))[:COHORT].tolist())]
        out = (dropped or {}).get(t, {})
        members = tuple(
            Participant(client, 40, 3, 1.0, coefficient=None if client in out else float(random.normal(0.2, 0.2)),
                        dropped=out.get(client))
            for client in dict.fromkeys([*cohort, *out])
        )  # fmt: skip
        evaluations = ()
        if t % every == 0 or t == rounds:
            even = level * (0.5 + 0.5 * np.arange(len(clients)) / max(len(clients) - 1, 1)) * (0.5 + 0.5 * t / rounds)
            scores = tuple(
                (client, Scores(k, 50, 1.0 - value, round(50 * value) / 50))
                for k, (client, value) in enumerate(zip(clients, even.tolist(), strict=True))
            )
            evaluations = (Evaluation("test", False, scores),)
        store.add(RoundRecord(
            round=t, local_lr=0.1, server_rate=1.0, participants=members, norm=1.0 / t, mean_norm=1.5 / t,
            condition=10.0, negative=sum((one.coefficient or 0.0) < 0 for one in members), rho=0.8,
            mean_decrease=0.1 / t, skipped="no client answered" if t in skipped else None,
            notes=dict((notes or {}).get(t, {})), evaluations=evaluations,
        ))  # fmt: skip
    store.close()
    return path


def made_up_study(root: Path, methods: Mapping[str, float], seeds: int = 3, **given: Any) -> Path:
    """Methods by name with the level of their accuracies; FedAvg is the rule of that name, others are AdaFed."""
    for method, level in methods.items():
        for seed in range(seeds):
            rule = "fedavg" if method == "FedAvg" else "adafed"
            made_up_run(root / method / f"seed-{seed}", rule=rule, seed=seed, level=level, **given)
    return root


def summarised(values: Mapping[str, Sequence[Mapping[str, float]]], **given: Any) -> Report:
    """A report of runs of which only measures are known: for each method, a mapping a seed."""
    runs = tuple(
        Run(method, seed, 10, 10, False, (10,), {key: (one,) for key, one in found.items()}, "here",
            baseline=method == "FedAvg")
        for method, seeds in values.items()
        for seed, found in enumerate(seeds)
    )  # fmt: skip
    return Report("made up", runs, **given)
