"""Flower's deployment engine for real: a SuperLink and SuperNodes as processes, insecure and with TLS and keys.

The same digits, the same rounds of AdaFed, the same bits as the simulator; nodes and servers killed with -9. Every
message starts a process that imports torch, so there are two nodes: one that is killed and one that goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from deployment import PATIENCE, Deployment, wait_for
from safetensors.torch import load_file

from adafed import Config, config_from, simulate
from adafed.engines.flower.certificates import make_certificates
from adafed.engines.flower.new import new_app
from adafed.runs.store import Store

pytestmark = pytest.mark.slow
Simulated = Callable[[int], dict[str, torch.Tensor]]  # the model after so many rounds
NODES = 2
TRAINS = "Receiving: train message"  # in a node's log
CONFIG: Config = config_from(
    {
        "rounds": 2,
        "partition": {"name": "dirichlet", "clients": NODES, "beta": 0.5},
        "model": {"name": "mlp", "hidden": [8]},
        "local": {"batch_size": 16, "together": "never"},
        "run": {"workers": 0},
    }
)


@pytest.fixture
def simulated(tmp_path: Path) -> Simulated:
    def after(rounds: int) -> dict[str, torch.Tensor]:
        for _ in simulate(CONFIG.changed(rounds=rounds), directory=tmp_path / "simulated"):
            pass
        return load_file(tmp_path / "simulated" / "model.safetensors")

    return after


def finished(deployment: Deployment, process: object, run: Path) -> dict[str, torch.Tensor]:
    process.wait(timeout=PATIENCE)  # type: ignore[attr-defined]
    assert (run / "model.safetensors").exists(), deployment.logs()
    return load_file(run / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_insecure(tmp_path: Path, simulated: Simulated) -> None:
    app = new_app(tmp_path / "app", CONFIG, NODES)
    with Deployment(tmp_path / "insecure") as deployment:
        for part in range(NODES):
            deployment.node(part, NODES)
        once = deployment.run(app, run_dir=tmp_path / "run", set="rounds=1")
        assert same(finished(deployment, once, tmp_path / "run"), simulated(1))
    assert not deployment.mine()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Deployment]:
    certificates = make_certificates(tmp_path / "certificates", nodes=NODES + 1)
    with Deployment(tmp_path / "secure", certificates=certificates) as deployment:
        for part in range(NODES):
            deployment.register(part)
            deployment.node(part, NODES)
        yield deployment
    assert not deployment.mine()


def test_secure_with_killed_server_and_killed_node(secure: Deployment, tmp_path: Path, simulated: Simulated) -> None:
    app = new_app(tmp_path / "app", CONFIG, NODES)
    (tmp_path / "certificates" / f"node{NODES}").rename(tmp_path / "certificates" / "stranger")
    stranger = secure.node(0, NODES, key="stranger")  # with a key that was never registered

    # The server is killed after its first round and started again: it goes on, to the same bits.
    run = tmp_path / "resumed"
    first = secure.run(app, run_dir=run)
    wait_for(lambda: list(run.glob("checkpoints/round-00000001*")), "the first round to end")
    secure.kill([*secure.mine("flwr-serverapp"), psutil.Process(first.pid)])
    assert not (run / "model.safetensors").exists()
    second = secure.run(app, run_dir=run)
    assert same(finished(secure, second, run), simulated(2))
    assert "going on after round 1" in secure.log("run1")

    assert stranger.poll() is not None, secure.logs()
    assert "Exit Code: 305" in secure.log("stranger")

    # A node is killed in mid-round: the round goes on without its client, and the record says so.
    run = tmp_path / "without"
    trained = secure.log("node1").count(TRAINS)
    third = secure.run(app, run_dir=run, set="rounds=1")
    wait_for(lambda: secure.log("node1").count(TRAINS) > trained, "node 1 to train")
    node = psutil.Process(secure.processes["node1"].pid)
    secure.kill([node, *node.children(recursive=True)])
    finished(secure, third, run)
    store = Store(run / "rounds.sqlite", read_only=True)
    participants = {one.client: one for one in store.participants(1)}
    store.close()
    assert "Node Unavailable" in (participants["1"].dropped or ""), secure.logs()
    assert participants["0"].dropped is None
    assert "client 1 left out" in secure.log("run2")
