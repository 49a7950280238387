"""One TOML, two engines: what Flower's clients and server make of an experiment is what the simulator makes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest
import torch
from deployment import wait_for
from flwr.app import Message, RecordDict
from pretend import PretendGrid

from adafed import AdafedError, Config, config_from, simulate
from adafed.config.merging import merged
from adafed.engines.flower.experiment import experiment_client, run_experiment
from adafed.engines.flower.ray import _let_go
from adafed.engines.local.simulate import Simulation
from adafed.rounds.records import RoundRecord
from adafed.runs.store import Store
from adafed.runs.summary import summarise
from adafed.server.state import ServerState

BASE: dict[str, Any] = {
    "rounds": 2,
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 6, "beta": 0.5, "minimum": 20},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"epochs": 1, "batch_size": 16, "together": "never"},
    "run": {"workers": 0},
}


FEDCORR: dict[str, Any] = {
    "rounds": 14,
    "partition": {"name": "iid", "clients": 6},
    "noise": {"clients": 0.5, "level": 0.6},
    "local": {"epochs": 3, "lr": 0.1, "momentum": 0.5, "mixup": 1.0},
    "rule": "fedavg",
    "fedcorr": {"iterations": 2, "clean_rounds": 1},
}


PICTURES: dict[str, Any] = {"data": {"flat": False}, "model": {"name": "cnn", "channels": [4, 6], "dense": 8}}


def experiment(**changes: Any) -> Config:
    return config_from(merged(BASE, changes))


def simulated(config: Config, directory: Path | None = None) -> ServerState:
    with Simulation(config, directory=directory) as simulation:
        for _ in simulation.rounds():
            pass
        return simulation.state


def on_flower(config: Config, directory: Path, nodes: int = 6, **options: Any) -> ServerState:
    """With what clients keep also in a folder, if `kept` names the setting for it."""
    setting = options.pop("kept", None)
    folder = {setting: str(directory / "on the nodes")} if setting else {}
    grid = PretendGrid(experiment_client(config, **folder), nodes)
    return run_experiment(grid, config, directory, nodes=nodes, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rule": "fedavg", "server": {"optimizer": "adam", "rate": 0.1}},
        {"rule": {"name": "qffl", "q": 1.0}},
        {"rule": {"name": "fedfv", "tau": 1}, "cohort": {"fraction": 0.5}, "rounds": 3},
        {"rule": "fedfa", "server": {"loss": "after"}},
        {"rule": "afl", "server": {"loss": "running"}},
        {"server": {"loss": "validation"}, "split": {"validation": 0.3}},
        {"memory": {"rounds": "all", "most": 4, "sketch": 64}, "cohort": {"fraction": 0.5}, "rounds": 4},
        {"cohort": {"count": 3, "sampling": "size", "stragglers": 0.5, "dropout": 0.3}, "rounds": 3},
        {"ditto": {"lambda": 0.5}, "rounds": 3, "cohort": {"fraction": 0.5}},
        {"local": {"mu": 0.1, "momentum": 0.5, "lr_decay": 0.9}},
        {"local": {"mixup": 1.0}, "ditto": {"lambda": 0.5}},
        {"memory": {"rounds": "all"}, "cohort": {"fraction": 0.5}, "rounds": 4},
        {"memory": {"rounds": 2, "storage": "int8"}, "cohort": {"count": 2, "sampling": "loss"}, "rounds": 4},
        {"server": {"step": "safe", "rate": 0.5}, "rounds": 4, "cohort": {"fraction": 0.5}},
        {"server": {"step": "safe", "rate": 20.0}, "rule": "fedavg", "rounds": 3, "ditto": {}},
        FEDCORR,
        FEDCORR  # six rounds of the first stage, one of the second, two of the third
        | {"rounds": 9, "rule": "adafed", "fedcorr": {"group": 2, "clean_rounds": 1, "iterations": 2}, "ditto": {}},
        {"client": {"rules": ["scaffold"]}, "rule": "fedavg", "rounds": 4, "cohort": {"fraction": 0.5}},
        {"client": {"rules": [{"name": "feddyn", "alpha": 0.5}]}, "rounds": 4, "cohort": {"fraction": 0.5}},
        {"client": {"rules": ["scaffold", "feddyn"]}, "local": {"mixup": 1.0, "mu": 0.1}, "rounds": 3},
        {"client": {"rules": [{"name": "fcfc", "feature": 9, "above": 0.5, "most": 0.05}]}, "rounds": 3},
        {"rule": "fedmdfg", "cohort": {"fraction": 0.5}, "rounds": 4},
        {"rule": "agnosticfair", "cohort": {"fraction": 0.5}, "rounds": 3},
        {"augment": {"padding": 1, "crop": 6, "flip": True}, "ditto": {"epochs": 2, "at_end": "everyone"}, **PICTURES},
    ],
)
def test_both_engines_give_the_same_bits(changes: dict[str, Any], tmp_path: Path) -> None:
    """A node a client, and fewer nodes than clients."""
    config = experiment(**changes)
    here = simulated(config, tmp_path / "here")
    for nodes in (6, 4):
        there = on_flower(config, tmp_path / f"on {nodes}", nodes)
        assert torch.equal(here.parameters, there.parameters)
        for name, moment in here.moments.items():
            assert torch.equal(moment, there.moments[name])
        assert (here.rule_state and here.rule_state.numbers) == (there.rule_state and there.rule_state.numbers)
        assert here.kept == there.kept
        assert here.known.keys() == there.known.keys()
        assert all(torch.equal(value, there.known[name]) for name, value in here.known.items())


def test_fedcorr_corrects_the_same_labels_on_both_engines(tmp_path: Path) -> None:
    config = experiment(**FEDCORR)
    here, there = simulated(config, tmp_path / "here"), on_flower(config, tmp_path / "there", 4)
    corrected = {name for name in here.known if name.startswith("fedcorr.labels.")}
    assert corrected
    assert corrected <= there.known.keys()
    (mine, theirs) = (records(tmp_path / name) for name in ("here", "there"))
    assert [record.notes for record in mine] == [record.notes for record in theirs]
    assert mine[-1].notes["relabelled"] == len(corrected)


def test_clients_trained_together_agree_to_float_tolerance(tmp_path: Path) -> None:
    config = experiment(partition={"name": "iid", "clients": 6}, local={"together": "auto"})
    here, there = simulated(config), on_flower(config, tmp_path)
    torch.testing.assert_close(here.parameters, there.parameters, rtol=1e-5, atol=1e-6)


def test_the_run_directory_holds_what_the_simulator_writes(tmp_path: Path) -> None:
    config = experiment(
        cohort={"fraction": 0.5}, ditto={"lambda": 0.5}, rounds=5, evaluation={"every": 2, "improvement_every": 3}
    )
    for _ in simulate(config, directory=tmp_path / "here"):
        pass
    on_flower(config, tmp_path / "there")
    (here, there) = (Store(tmp_path / name / "rounds.sqlite", read_only=True) for name in ("here", "there"))
    for mine, theirs in zip(here.records(), there.records(), strict=True):
        assert mine.norm == theirs.norm
        assert mine.condition == theirs.condition
        for one, other in zip(mine.participants, theirs.participants, strict=True):
            assert (one.client, one.samples, one.steps) == (other.client, other.samples, other.steps)
            assert (one.before, one.running, one.coefficient) == (other.before, other.running, other.coefficient)
        assert mine.rho == theirs.rho
        assert (mine.rho is not None) == (mine.round in (3, 5))
        if mine.rho is not None:
            assert mine.mean_decrease == pytest.approx(theirs.mean_decrease, rel=1e-5)
        assert len(mine.evaluations) == (4 if mine.round in (2, 4, 5) else 0)
        for ours, others in zip(mine.evaluations, theirs.evaluations, strict=True):
            assert (ours.part, ours.personal) == (others.part, others.personal)
            for (name, own), (other_name, another) in zip(ours.scores, others.scores, strict=True):
                assert (name, own.samples, own.accuracy) == (other_name, another.samples, another.accuracy)
                assert own.loss == pytest.approx(another.loss, rel=1e-5)
    here.close()
    there.close()
    finals = [summarise(tmp_path / name).final for name in ("here", "there")]
    assert finals[0].keys() == finals[1].keys()
    for measure, value in finals[0].items():
        assert value == pytest.approx(finals[1][measure], rel=1e-5), measure
    assert (tmp_path / "there" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("changes", "folder"),
    [
        ({"rule": {"name": "fedfv", "tau": 2}, "server": {"optimizer": "yogi", "rate": 0.1}}, "client-dir"),
        ({"memory": {"rounds": "all"}}, "client-dir"),
        ({"ditto": {}}, "client-dir"),
        ({"ditto": {}}, "personal-dir"),
        ({"ditto": {}, "client": {"rules": ["scaffold"]}}, "client-dir"),
    ],
)
def test_a_run_in_pieces_is_the_simulators_run(changes: dict[str, Any], folder: str, tmp_path: Path) -> None:
    """A new grid each time: nodes have new numbers and no memory but what is in their folder."""
    config = experiment(cohort={"fraction": 0.5}, **changes)
    for rounds in (1, 2, 4):
        there = on_flower(config.changed(rounds=rounds), tmp_path / "there", 3, kept=folder)
    assert torch.equal(simulated(config.changed(rounds=4), tmp_path / "here").parameters, there.parameters)
    (mine, theirs) = (records(tmp_path / name)[-1].evaluation() for name in ("here", "there"))
    assert mine is not None
    assert theirs is not None
    assert mine.personal == theirs.personal == config.personalised == ("ditto" in changes)
    for (_, one), (_, other) in zip(mine.scores, theirs.scores, strict=True):
        assert one.accuracy == other.accuracy
        assert one.loss == pytest.approx(other.loss, rel=1e-5)


@pytest.mark.parametrize("at_end", ["undrawn", "everyone", "nobody"])
def test_a_prolonged_run_has_the_simulators_evaluations(at_end: str, tmp_path: Path) -> None:
    """Of what was its last round too, where own models are others than in the midst of a run."""
    config = experiment(cohort={"fraction": 0.5}, ditto={"at_end": at_end}, evaluation={"every": 1})
    for rounds in (2, 4):
        simulated(config.changed(rounds=rounds), tmp_path / "here")
        on_flower(config.changed(rounds=rounds), tmp_path / "there", 3, kept="client-dir")
    here, there = (evaluations(tmp_path / name) for name in ("here", "there"))
    assert sorted(here) == [
        (t, part, own) for t in (1, 2, 3, 4) for part in ("test", "validation") for own in (False, True)
    ]
    assert here == there


def test_a_run_that_is_declared_over_has_the_simulators_evaluations(tmp_path: Path) -> None:
    """It was stopped after a round that was not its last, and now is."""

    class Stopped(Exception):
        pass

    def stop(record: RoundRecord) -> None:
        if record.round == 2:
            raise Stopped

    config = experiment(cohort={"fraction": 0.5}, ditto={}, rounds=4, evaluation={"every": 4})
    for record in simulate(config, directory=tmp_path / "here"):
        if record.round == 2:
            break
    with pytest.raises(Stopped):
        on_flower(config, tmp_path / "there", 3, kept="client-dir", watch=stop)
    simulated(config.changed(rounds=2), tmp_path / "here")
    on_flower(config.changed(rounds=2), tmp_path / "there", 3, kept="client-dir")
    here, there = (evaluations(tmp_path / name) for name in ("here", "there"))
    assert sorted(here) == [(2, part, own) for part in ("test", "validation") for own in (False, True)]
    assert here == there


@pytest.mark.parametrize(("every", "evaluated"), [(None, [2, 4]), (0, [4]), (-1, []), (3, [3, 4])])
def test_an_app_has_the_last_word_on_evaluations(every: int | None, evaluated: list[int], tmp_path: Path) -> None:
    """And a run may be prolonged, which makes it the longer run, or evaluated at other rounds: neither changes a bit of
    the training."""
    config = experiment(evaluation={"every": 2, "improvement_every": 2})
    for rounds in (1, 4):
        state = on_flower(config.changed(rounds=rounds), tmp_path / "there", 3, evaluate_every=every)
    there = records(tmp_path / "there")
    assert [record.round for record in there if record.evaluations] == evaluated
    assert [record.round for record in there if record.rho is not None] == evaluated
    assert torch.equal(state.parameters, simulated(config.changed(rounds=4)).parameters)


def test_a_reply_that_is_lost_leaves_both_sides_with_the_same(tmp_path: Path) -> None:
    """SCAFFOLD's c stays the mean of what the clients go by: one whose reply was lost goes on from before."""
    config = experiment(client={"rules": ["scaffold"]}, rounds=4)
    grid, heard = PretendGrid(experiment_client(config), 6), []

    def lose(client: int, reply: Any) -> Any:
        heard.append(client)
        return None if len(heard) in (8, 9) else reply

    grid.spoil = lose
    state = run_experiment(grid, config, tmp_path)
    total = torch.zeros(state.length)
    for node, context in grid.contexts.items():
        client = grid.parts[node]
        total += torch.from_numpy(
            context.state.array_records[f"kept:{client}:{state.kept[str(client)]}"]["scaffold.control"].numpy()
        )
    torch.testing.assert_close(state.known["scaffold.control"], total / 6, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("steps", [1e300, -1e300, float("nan"), 0.5])
def test_steps_out_of_reason_end_nothing(steps: float, tmp_path: Path) -> None:
    config = experiment(rounds=1)

    def lie(client: int, reply: Any) -> Any:
        reply.content.metric_records[f"metrics:{client}"]["steps"] = steps
        return reply

    run_experiment(PretendGrid(experiment_client(config), 6, spoil=lie), config, tmp_path)
    assert {one.steps for one in records(tmp_path)[0].participants} <= {None, 0}


def records(directory: Path) -> list[RoundRecord]:
    store = Store(directory / "rounds.sqlite", read_only=True)
    try:
        return list(store.records())
    finally:
        store.close()


def evaluations(directory: Path) -> dict[tuple[int, str, bool], list[tuple[str, int, float | None]]]:
    """By round, part, and whether with own models: each client's samples and accuracy."""
    return {
        (record.round, one.part, one.personal): [(name, score.samples, score.accuracy) for name, score in one.scores]
        for record in records(directory)
        for one in record.evaluations
    }


@pytest.mark.parametrize("changes", [{"ditto": {"lambda": 0.5}}, {"client": {"rules": ["scaffold"]}}])
def test_what_a_client_kept_and_lost_starts_anew_and_is_named(
    changes: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = experiment(**changes)
    on_flower(config.changed(rounds=1), tmp_path)
    assert "lost what it kept" not in caplog.text
    on_flower(config, tmp_path)
    for client in range(6):
        assert f"round 2: client {client} had lost what it kept" in caplog.text


class Forgetful(PretendGrid):
    """Whose nodes begin anew before an evaluation, some or all of them: the state of their `Context` is gone."""

    lose: tuple[int, ...] = ()
    at = 0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        there = list(messages)
        if there and there[0].metadata.message_type == "evaluate" and there[0].metadata.group_id == str(self.at):
            for node, part in self.parts.items():
                if part in self.lose:
                    self.contexts[node].state = RecordDict()
        return super().send_and_receive(there, timeout=timeout)


@pytest.mark.parametrize("at", [2, 3])
@pytest.mark.parametrize("at_end", ["undrawn", "everyone", "nobody"])
def test_an_own_model_that_was_lost_is_not_evaluated_as_another(
    at_end: str, at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever was never drawn has lost nothing, and has what the simulator has for it."""
    config = experiment(
        cohort={"count": 1, "fraction": None}, ditto={"at_end": at_end}, rounds=3, evaluation={"every": 1}
    )
    simulated(config, tmp_path / "here")
    grid = Forgetful(experiment_client(config), 6)
    drawn = [{one.client for one in record.participants} for record in records(tmp_path / "here")]
    (lost,) = drawn[at - 1]
    never = set(map(str, range(6))) - set.union(*drawn)
    assert never
    grid.at, grid.lose = at, (int(lost), *map(int, never))
    run_experiment(grid, config, tmp_path / "there")
    here, there = (evaluations(tmp_path / name) for name in ("here", "there"))
    for (t, part, own), scores in here.items():
        without = own and (t == at or (t > at and lost not in drawn[t - 1]))
        assert there[t, part, own] == [score for score in scores if not (without and score[0] == lost)]
    assert list(records(tmp_path / "there")[at - 1].notes["not_evaluated"]) == [lost]
    assert f"round {at}: client {lost} had lost what it kept: its own model is not evaluated" in caplog.text
    for client in never:
        assert f"client {client} had lost" not in caplog.text


def test_a_node_with_a_folder_has_lost_no_own_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = experiment(ditto={}, evaluation={"every": 1})
    simulated(config, tmp_path / "here")
    grid = Forgetful(experiment_client(config, **{"client-dir": str(tmp_path / "nodes")}), 6)
    grid.at, grid.lose = 2, tuple(range(6))
    run_experiment(grid, config, tmp_path / "there")
    assert evaluations(tmp_path / "here") == evaluations(tmp_path / "there")
    assert "had lost" not in caplog.text


def test_a_personal_model_stays_in_the_state_of_its_node(tmp_path: Path) -> None:
    config = experiment(ditto={"lambda": 0.5})
    grid = PretendGrid(experiment_client(config), 6)
    heard = []
    grid.spoil = lambda client, reply: heard.append(reply) or reply  # type: ignore[func-returns-value]
    run_experiment(grid, config, tmp_path)
    for node, context in grid.contexts.items():
        assert list(context.state.array_records[f"kept:{grid.parts[node]}:{config.rounds}"]) == ["ditto.personal"]
    assert {key.partition(":")[0] for reply in heard for key in reply.content.array_records} == {"update"}
    assert not list((tmp_path / "clients").iterdir())


@pytest.mark.parametrize("kept", [None, "client-dir"])
def test_who_was_never_drawn_has_a_model_of_its_own_at_the_end(kept: str | None, tmp_path: Path) -> None:
    config = experiment(rounds=2, cohort={"count": 2, "fraction": None}, ditto={"lambda": 0.5})
    simulated(config, tmp_path / "here")
    grid = PretendGrid(experiment_client(config, **({kept: str(tmp_path / "nodes")} if kept else {})), 6)
    run_experiment(grid, config, tmp_path / "there")
    made = {int(file.stem.removeprefix("last-")) for file in (tmp_path / "here" / "clients").glob("last-*")}
    assert 2 <= len(made) < 6
    contexts = {grid.parts[node]: context for node, context in grid.contexts.items()}
    assert {part for part, one in contexts.items() if f"last:{part}" in one.state.array_records} == made
    mine, theirs = (records(tmp_path / name)[-1] for name in ("here", "there"))
    for ours, others in zip(mine.evaluations, theirs.evaluations, strict=True):
        assert [(name, score.accuracy) for name, score in ours.scores] == [
            (name, score.accuracy) for name, score in others.scores
        ]


def test_a_node_that_does_not_know_its_part_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = experiment(rounds=1)
    grid = PretendGrid(experiment_client(config), 2)
    for context in grid.contexts.values():
        context.node_config.pop("partition-id")
    state = run_experiment(grid, config, tmp_path, nodes=2, timeout=1.0)
    assert "partition-id=0 num-partitions=3" in caplog.text
    assert state.round == 1
    assert records(tmp_path)[0].skipped


@pytest.mark.slow
def test_flowers_simulation_engine_gives_the_same_bits(tmp_path: Path) -> None:
    """On Ray, in a process of its own: a run that is stopped after a round and continued."""
    config = experiment(cohort={"fraction": 0.5}, ditto={"lambda": 0.5}, run={"workers": 1})
    file = tmp_path / "experiment.toml"
    file.write_text(config.to_toml())
    command = [sys.executable, "-m", "adafed", "run", str(file), "--engine", "flower", "--nodes", "3"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    for more in (["--set", "rounds=1"], ["--continue"]):
        subprocess.run(
            [*command, "--out", str(tmp_path / "there"), *more], check=True, timeout=600, env=environment, cwd=tmp_path
        )
    wait_for(lambda: not [one for one in psutil.process_iter() if _of(one, str(tmp_path))], "Ray to end", 60.0)
    simulated(config, tmp_path / "here")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("here", "there")]
    assert models[0] == models[1]


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_a_run_on_ray(presses: int, tmp_path: Path, patience: float) -> None:
    """As a terminal sends it, to Ray's processes too. Once: after the round; twice: at once, or when it has ended."""
    file = tmp_path / "experiment.toml"
    file.write_text(experiment(rounds=100000, run={"workers": 1}).to_toml())
    command = [sys.executable, "-m", "adafed", "run", str(file), "--engine", "flower", "--nodes", "2", "--out", "here"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, env=environment, cwd=tmp_path, text=True, start_new_session=True
    )
    try:
        wait_for(lambda: any((tmp_path / "here" / "checkpoints").glob("round-*")), "a round", patience)
        for _ in range(presses):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.2)  # two at once would be one
        _, told = process.communicate(timeout=patience)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in told
    assert presses == 2 or "go on with: adafed resume here --nodes 2" in told
    wait_for(lambda: not [one for one in psutil.process_iter() if _of(one, str(tmp_path))], "Ray to end", 60.0)


def test_a_run_that_is_asked_to_stop_ends_after_its_round_and_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    config = experiment(rounds=3)
    assert on_flower(config, tmp_path / "run", stopped=lambda: True).round == 1
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert on_flower(config, tmp_path / "run", stopped=lambda: False).round == 3
    assert torch.equal(on_flower(config, tmp_path / "run").parameters, simulated(config).parameters)
    assert on_flower(config.changed(rounds=1), tmp_path / "one", stopped=lambda: True).round == 1
    assert (tmp_path / "one" / "model.safetensors").exists()


def test_nobody_waits_for_nodes_or_replies_once_the_simulation_is_over() -> None:
    class Waiting(PretendGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return []

    grid, over = Waiting(experiment_client(experiment()), 1), Event()
    _let_go(grid, over)
    assert grid.pull_messages([]) == []
    assert grid.get_node_ids() == list(grid.parts)
    over.set()
    with pytest.raises(AdafedError, match="over"):
        grid.pull_messages([])
    with pytest.raises(AdafedError, match="over"):
        grid.get_node_ids()


def _of(process: psutil.Process, folder: str) -> bool:
    try:
        return folder in " ".join(process.cmdline()) or folder in process.environ().get("PWD", "")
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False


def test_an_attack_is_the_simulators_alone(tmp_path: Path) -> None:
    with pytest.raises(
        AdafedError, match=r"^\[attack\] is the simulator's alone, and these clients are real; leave it"
    ):
        on_flower(experiment(attack={"use": ["scale"]}), tmp_path / "run")


def test_what_a_killed_node_left_half_written_goes_with_its_clients_next_visit(tmp_path: Path) -> None:
    config, folder = experiment(ditto={}, rounds=2), tmp_path / "run" / "on the nodes"
    folder.mkdir(parents=True)
    for name in (".0-1.safetensors.99999.partial", ".last-5.safetensors.99999.partial", ".somebody.else"):
        (folder / name).write_text("half")
    on_flower(config, tmp_path / "run", kept="client-dir")
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == [".somebody.else"]
