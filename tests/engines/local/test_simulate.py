"""The simulator as a whole: the same bits whatever the workers, and what happens to clients that fail."""

from __future__ import annotations

import gc
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file

from adafed import AdafedError
from adafed.config.configuration import Config, config_from
from adafed.config.merging import merged
from adafed.data.base import ClientData, Normalisation, Split
from adafed.engines.local.simulate import Simulation, simulate
from adafed.rounds.records import RoundRecord
from adafed.runs.store import Store

MODULE = '''
import numpy as np
import torch
from torch import nn


class Normed(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.first = nn.Linear(input_shape[0], 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, classes)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class Masked(nn.Module):
    """With a constant that is not finite among its buffers, as attention has one."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.last = nn.Linear(input_shape[0], classes)
        self.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1), persistent=False)

    def forward(self, x):
        return self.last(x)


class Poisoned(nn.Module):
    """Clients whose first feature is above 100 make it diverge."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.last = nn.Linear(input_shape[0], classes)

    def forward(self, x):
        return torch.where(x[:, :1] > 100, torch.nan, self.last(x.clamp(max=3)))


class Frozen(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.first = nn.Linear(input_shape[0], 5)
        self.last = nn.Linear(5, classes)
        self.unused = nn.Parameter(torch.ones(3))
        self.first.weight.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def clients(count=4, bad=0):
    random = np.random.default_rng(3)
    made = {}
    for k in range(count):
        x = random.standard_normal((12, 5)).astype(np.float32)
        if bad and k == 1:
            x[:, 0] = bad
        made[f"client {k}"] = (x, np.arange(12) % 3)
    return made


def pool(samples=60):
    random = np.random.default_rng(4)
    return random.standard_normal((samples, 5)).astype(np.float32), np.arange(samples) % 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user's own module, importable here and in workers."""
    (tmp_path / "mine_for_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "mine_for_tests"
    sys.modules.pop("mine_for_tests", None)


def experiment(**changes: Any) -> Config:
    """Eight synthetic clients, three rounds, in this process."""
    base = {
        "rounds": 3,
        "seed": 5,
        "data": {"name": "synthetic", "clients": 8, "samples": 20, "features": 6, "classes": 3},
        "model": {"name": "mlp", "hidden": [7]},
        "cohort": {"count": 6},
        "local": {"batch_size": 5, "lr": 0.05},
        "run": {"workers": 0},
    }
    return config_from(merged(base, changes))


def bits(directory: Path) -> tuple[dict[str, list[tuple[Any, ...]]], dict[str, torch.Tensor]]:
    """Every row and the final model."""
    with sqlite3.connect(directory / "rounds.sqlite") as database:
        tables = {
            table: database.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4").fetchall()
            for table in ("rounds", "participants", "evaluations")
        }
    database.close()
    return tables, load_file(directory / "model.safetensors")


def assert_same(one: Path, other: Path) -> None:
    (rows, model), (other_rows, other_model) = bits(one), bits(other)
    assert rows == other_rows
    assert model.keys() == other_model.keys()
    for name, tensor in model.items():
        assert torch.equal(tensor, other_model[name]), name


def run(config: Config, directory: Path) -> list[RoundRecord]:
    return list(simulate(config, directory=directory))


VARIANTS: dict[str, dict[str, Any]] = {
    "told what they have on held-out samples, and sketched": {
        "cohort": {"count": 3},
        "server": {"loss": "validation"},
        "memory": {"rounds": "all", "most": 5, "sketch": 32},
        "local": {"together": 3},
    },
    "together, with dropouts and stragglers": {
        "cohort": {"dropout": 0.2, "stragglers": 0.4},
        "local": {"together": 3, "epochs": 2, "mu": 0.1, "momentum": 0.5},
    },
    "ditto on FedFV's memory": {
        "rule": {"name": "fedfv", "tau": 2},
        "ditto": {"lambda": 0.5},
        "cohort": {"count": 3, "stragglers": 0.3},
        "server": {"loss": "after"},
    },
    "SCAFFOLD, mixup and FedProx": {
        "client": {"rules": ["scaffold"]},
        "local": {"mixup": 0.5, "mu": 0.1},
        "cohort": {"count": 3, "stragglers": 0.3},
        "rule": "fedavg",
        "model": {"name": "mine_for_tests:Normed"},
    },
    "one by one, under a server with Adam": {
        "local": {"together": "never", "weight_decay": 0.01},
        "server": {"optimizer": {"name": "adam"}, "rate": 0.05, "loss": "running"},
        "model": {"name": "mine_for_tests:Normed"},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_number_of_workers_changes_no_bit(variant: dict[str, Any], tmp_path: Path, module: str) -> None:
    """One that does everything, and three over whom eight clients do not divide evenly."""
    for workers in (0, 1, 3):
        run(experiment(**merged(variant, {"run": {"workers": workers}})), tmp_path / str(workers))
    for workers in (1, 3):
        assert_same(tmp_path / "0", tmp_path / str(workers))


def test_torch_threads_change_no_bit(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            run(experiment(), tmp_path / str(threads))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert_same(tmp_path / "1", tmp_path / "2")


def test_clients_trained_together_learn_what_they_learn_alone() -> None:
    """To rounding: stacked products add up in another order."""
    together, alone = (
        list(simulate(experiment(local={"together": how, "momentum": 0.9, "weight_decay": 0.1, "mu": 0.5})))
        for how in (4, "never")
    )
    for one, other in zip(together, alone, strict=True):
        for mine, theirs in zip(one.participants, other.participants, strict=True):
            assert mine.running == pytest.approx(theirs.running, rel=1e-5)
            assert mine.coefficient == pytest.approx(theirs.coefficient, rel=1e-2, abs=1e-3)


# What two rules have in common


def test_two_rules_see_the_same_split_start_and_cohorts() -> None:
    seen = []
    for rule in ("adafed", "fedavg", "afl"):
        config = experiment(rule={"name": rule}, rounds=4, cohort={"count": 4, "dropout": 0.2, "stragglers": 0.5})
        with Simulation(config) as simulation:
            start = simulation.station.initial
            first = simulation.federation.client(0).train.inputs
            cohorts = [[(p.client, p.dropped, p.steps) for p in r.participants] for r in simulation.rounds()]
        seen.append((start, first, cohorts))
    for start, first, cohorts in seen[1:]:
        assert torch.equal(start, seen[0][0])
        assert (first == seen[0][1]).all()
        assert cohorts == seen[0][2]


def test_the_three_seeds_are_independent() -> None:
    def facts(**seeds: int) -> tuple[Any, Any, Any]:
        with Simulation(experiment(seeds=seeds)) as simulation:
            data = simulation.federation.client(0).train.inputs.tobytes()
            return data, simulation.station.initial.numpy().tobytes(), simulation.loop.sampler.cohort(1)

    base = facts()
    for position, name in enumerate(("data", "model", "sampling")):
        other = facts(**{name: 12345})
        assert [base[i] == other[i] for i in range(3)] == [i != position for i in range(3)]


def test_fedprox_with_one_local_step_is_fedavg(tmp_path: Path) -> None:
    for mu in (0.0, 1.0):
        config = experiment(local={"batch_size": "full", "mu": mu}, rule={"name": "fedavg"})
        run(config, tmp_path / str(mu))
    assert_same(tmp_path / "0.0", tmp_path / "1.0")


def test_q_of_zero_is_uniform_fedavg() -> None:
    """Up to rounding: q-FFL divides by the sum of h_k = 1 / lr, FedAvg by the number of clients."""
    models = []
    for rule in ({"name": "qffl", "q": 0.0}, {"name": "fedavg", "weighted": False}):
        with Simulation(experiment(rule=rule)) as simulation:
            list(simulation.rounds())
            models.append(simulation.state.parameters)
    assert torch.allclose(*models, atol=1e-6)


def test_gamma_of_zero_has_equal_rates() -> None:
    config = experiment(
        rule={"name": "adafed", "gamma": 0.0, "hull": "affine"},
        model={"name": "mlp", "hidden": [20]},
        guards={"use": []},
    )
    for record in simulate(config):
        descents = [p.descent for p in record.participants if p.descent is not None]
        assert len(descents) == 6
        assert descents == pytest.approx([descents[0]] * 6, rel=1e-4)


# Clients that fail


def test_a_round_without_answers_leaves_the_model_alone(tmp_path: Path) -> None:
    config = experiment(cohort={"count": 1, "dropout": 0.9}, rounds=6)
    with Simulation(config, directory=tmp_path / "run") as simulation:
        before, skipped = simulation.state.parameters.clone(), 0
        for record in simulation.rounds():
            if record.skipped:
                skipped += 1
                assert record.skipped == "no client answered"
                assert [p.dropped for p in record.participants] == ["did not answer"]
                assert torch.equal(simulation.state.parameters, before)
                assert record.rho is None
                assert record.norm is None
            before = simulation.state.parameters.clone()
        assert skipped > 0
        assert simulation.state.round == 6


def test_clients_join_late() -> None:
    late = {str(k): 3 for k in range(8) if k != 2}
    records = list(simulate(experiment(cohort={"count": 6, "join": late}, rounds=4)))
    assert [len(record.participants) for record in records] == [1, 1, 6, 6]
    assert records[0].participants[0].client == "2"


def test_before_anyone_has_joined_rounds_are_skipped() -> None:
    records = list(simulate(experiment(cohort={"join": {str(k): 2 for k in range(8)}}, rounds=2)))
    assert records[0].skipped == "no client has joined yet"
    assert records[1].skipped is None


def test_a_client_that_diverges_is_dropped_and_recorded(module: str, tmp_path: Path) -> None:
    config = experiment(
        data={"name": "function", "function": f"{module}:clients", "bad": 1000},
        model={"name": f"{module}:Poisoned"},
        cohort={"count": 4},
    )
    records = run(config, tmp_path / "run")
    for record in records:
        reasons = {p.client: p.dropped for p in record.participants}
        assert "loss is nan" in str(reasons.pop("client 1"))
        assert not any(reasons.values())
    store = Store(tmp_path / "run" / "rounds.sqlite", read_only=True)
    kept = {p.client: p for p in store.participants(1)}
    store.close()
    assert "nan" in str(kept["client 1"].dropped)
    assert kept["client 1"].running is None
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in model.values())


def test_if_every_client_diverges_the_round_is_skipped(module: str) -> None:
    config = experiment(
        data={"name": "function", "function": f"{module}:clients", "bad": 1000},
        model={"name": f"{module}:Poisoned"},
        cohort={"count": 1},
        rounds=8,
    )
    skipped = [record.skipped for record in simulate(config) if record.participants[0].client == "client 1"]
    assert skipped
    assert all("no client is left" in str(reason) for reason in skipped)


# Models and data of the user's


def test_batchnorm_statistics_are_averaged_and_stay_out_of_the_gram(module: str) -> None:
    config = experiment(model={"name": f"{module}:Normed"}, rule={"name": "fedavg"}, rounds=1, cohort={"count": 8})
    with Simulation(config) as simulation:
        length, model = simulation.state.length, simulation.station.model
        assert model.statistics == 16
        seen: list[np.ndarray[Any, Any]] = []
        updates = simulation.engine.executor.updates
        aggregate_rows = updates.rows

        def spied(count: int, width: int) -> Any:
            seen.append(updates.array[:count].copy())
            assert width == length
            return aggregate_rows(count, width)

        updates.rows = spied  # type: ignore[method-assign]
        list(simulation.rounds())
        statistics = simulation.state.parameters[length:].numpy()
        assert statistics == pytest.approx(seen[0][:, length:].mean(axis=0), rel=1e-5)  # equal sample counts
        assert abs(statistics[:8]).max() > 0
        assert (statistics[8:] > 0).all()


def test_a_client_with_broken_statistics_is_left_out(module: str) -> None:
    config = experiment(
        data={"name": "function", "function": f"{module}:clients", "bad": 1e30},
        model={"name": f"{module}:Normed"},
        rule={"name": "fedavg"},
        cohort={"count": 4},
    )
    with Simulation(config) as simulation:
        for record in simulation.rounds():
            reasons = {p.client: p.dropped for p in record.participants}
            assert reasons.pop("client 1") == "BatchNorm statistics hold NaN or infinity"
            assert not any(reasons.values())
        assert torch.isfinite(simulation.state.parameters).all()


def test_frozen_and_unused_parameters_stay_as_they_are(module: str) -> None:
    config = experiment(
        data={"name": "function", "function": f"{module}:clients"},
        model={"name": f"{module}:Frozen"},
        cohort={"count": 4},
        local={"mu": 0.1, "together": 4},
    )
    with Simulation(config) as simulation:
        start = simulation.station.initial.clone()
        list(simulation.rounds())
        views = dict(zip(simulation.station.model.shapes, simulation.station.model.views(start), strict=True))
        ends = simulation.station.model.views(simulation.state.parameters)
        moved = {name for (name, old), new in zip(views.items(), ends, strict=True) if not torch.equal(old, new)}
    assert moved == {"first.bias", "last.weight", "last.bias"}


def test_data_from_a_function_with_clients_and_one_to_be_partitioned(module: str) -> None:
    given = experiment(data={"name": "function", "function": f"{module}:clients", "count": 3}, cohort={"count": 2})
    assert {p.client for r in simulate(given) for p in r.participants} <= {"client 0", "client 1", "client 2"}
    whole = experiment(
        data={"name": "function", "function": f"{module}:pool"},
        partition={"name": "iid", "clients": 5},
        cohort={"count": 5},
    )
    assert [len(record.participants) for record in simulate(whole)] == [5, 5, 5]


def test_data_from_a_folder(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("anna", "bo", "cem"):
        np.savez(tmp_path / f"{name}.npz", x=random.standard_normal((10, 4)).astype(np.float32), y=np.arange(10) % 2)
    config = experiment(data={"name": "folder", "folder": str(tmp_path)}, cohort={"count": 3})
    (record, *_) = simulate(config)
    assert [p.client for p in record.participants] == ["anna", "bo", "cem"]


class Handmade:
    """A federation made in Python."""

    name, classes, input_shape, checksum = "handmade", 2, (3,), "0" * 64
    ids = ("x", "y")
    normalisation = Normalisation()
    train_sizes = np.array([6, 9])

    def client(self, index: int) -> ClientData:
        random = np.random.default_rng(index)
        counts = (int(self.train_sizes[index]), 0, 4)
        return ClientData(*(Split(random.standard_normal((n, 3)).astype(np.float32), np.arange(n) % 2) for n in counts))


def test_a_federation_made_in_python_stays_in_this_process() -> None:
    config = experiment(cohort={"count": 2}, run={"workers": 2})
    with Simulation(config, federation=Handmade()) as simulation:
        assert not psutil.Process().children()
        records = list(simulation.rounds())
    assert [len(record.participants) for record in records] == [2, 2, 2]
    assert [evaluation.part for evaluation in records[0].evaluations] == ["test"]  # nobody has a validation sample


# Nothing left behind


def test_no_descriptor_and_no_file_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    config = experiment(ditto={"lambda": 1.0}, rounds=1)
    list(simulate(config))
    gc.collect()  # of earlier tests
    before = psutil.Process().num_fds()
    for k in range(3):
        list(simulate(config))
        list(simulate(config, directory=tmp_path / f"run {k}"))
    gc.collect()
    assert psutil.Process().num_fds() == before
    assert not list((tmp_path / "scratch").iterdir())
    assert not list(tmp_path.rglob("*.partial"))
    kept = list((tmp_path / "run 0" / "clients").iterdir())
    assert len(kept) == 8  # of the six that were drawn, and of two at the end


def test_a_run_left_early_closes_its_files(tmp_path: Path) -> None:
    records = simulate(experiment(), directory=tmp_path / "run")
    next(records)
    with pytest.raises(AdafedError, match="in use by another process"):
        next(simulate(experiment(), directory=tmp_path / "run"))
    records.close()  # type: ignore[attr-defined]
    assert [record.round for record in simulate(experiment(), directory=tmp_path / "run")] == [2, 3]


def test_a_failure_while_starting_releases_the_directory(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"model\.name = 'cnn' takes images"):
        list(simulate(experiment(model={"name": "cnn"}), directory=tmp_path / "run"))
    list(simulate(experiment(), directory=tmp_path / "run"))


# rho_t


def test_a_model_that_does_not_move_has_not_got_worse() -> None:
    """Losses before and after come from the same batches, so rounding alone changes none of them."""
    config = experiment(local={"together": 4, "lr": 1e-30}, server={"rate": 1e-30}, data={"samples": 33, "clients": 30},
                        cohort={"count": 30})  # fmt: skip
    for record in simulate(config):
        assert record.rho in (1.0, None)
        assert all(p.stepped == p.before for p in record.participants)


@pytest.mark.slow
def test_no_process_is_left_behind() -> None:
    list(simulate(experiment(rounds=1, run={"workers": 1})))
    assert not psutil.Process().children()


def test_a_mask_among_the_buffers_costs_no_round(module: str) -> None:
    records = list(simulate(experiment(model={"name": f"{module}:Masked"})))
    assert [record.skipped for record in records] == [None] * 3


@pytest.mark.parametrize("batch", [3, "full"])
def test_a_rest_of_one_sample_is_trained_on_with_the_batch_before_it(module: str, batch: int | str) -> None:
    """BatchNorm takes no mean over one sample."""
    data = {"name": f"{module}:clients"}  # 12 samples each, of which 10 are trained on
    changes = {"model": {"name": f"{module}:Normed"}, "data": data, "split": {"validation": 0.0, "test": 0.2}}
    records = list(
        simulate(config_from({"rounds": 2, "run": {"workers": 0}, "local": {"batch_size": batch}} | changes))
    )
    steps = {one.steps for record in records for one in record.participants}
    assert steps == ({3} if batch == 3 else {1})
    with pytest.raises(AdafedError, match=r"local.batch_size = 1, and the model's BatchNorm cannot be trained on one"):
        list(simulate(config_from({"rounds": 2, "local": {"batch_size": 1}} | changes)))


@pytest.mark.parametrize("sampling", ["loss", "power-of-choice"])
def test_one_that_never_tells_a_loss_does_not_stop_the_others(module: str, sampling: str) -> None:
    changes = {"data": {"name": f"{module}:clients", "bad": 200}, "cohort": {"count": 1, "sampling": sampling}}
    config = config_from(
        {"rounds": 16, "model": {"name": f"{module}:Poisoned"}, "run": {"workers": 0}, "guards": {"use": []}} | changes
    )
    drawn = [record.participants[0].client for record in simulate(config)]
    assert "client 1" in drawn
    assert drawn.count("client 1") < 10
    assert drawn[-1] != "client 1" or drawn[-2] != "client 1"
