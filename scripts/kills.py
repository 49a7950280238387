"""Kills adafed with -9 at random moments, again and again, and sees that nothing is lost: scripts/kills.py --count 200.

Every command is first left alone. Then it is begun, killed at a random moment, looked at, and begun again, a few times
over, and at last left to end: what it leaves must be what it left the first time, to the bit. After every kill, each
file that is there must be whole and no process may go on. One line a command, exit code 1 if anything was wrong.

Processes are forked from this one, so that imports do not take the time in which kills are wanted. `reproduce` needs
the data of Fashion-MNIST (ADAFED_DATA) and is left out without; `flower` needs the extra of that name. There, messages
go straight from the server to the clients' app, and both are killed together.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import http.server
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil
import torch
from safetensors.torch import load_file

TOML = """
name = "killed"
rounds = 12
data = { name = "synthetic", clients = 6, samples = 20, features = 5, classes = 3 }
model = { name = "mlp", hidden = [6] }
cohort = { count = 4, dropout = 0.1, stragglers = 0.3 }
local = { batch_size = 8 }
rule = { name = "fedfv", tau = 2 }
memory = { rounds = "all" }
ditto = { lambda = 0.3 }
client = { rules = ["scaffold"] }
run = { workers = 0 }
[server]
rate = 0.5
step = "safe"
[methods.FedAvg]
rule = "fedavg"
[methods.AdaFed]
rule = "adafed"
[study]
seeds = [0, 1]
"""
MOST = 4  # kills in one attempt at a command, before it is left to end


@dataclass(frozen=True)
class Command:
    """What is done in a folder of its own, and how the files it leaves are told apart."""

    do: Callable[[], None]
    prepare: Callable[[Path], None] = lambda folder: None
    bits: Callable[[Path], str] = lambda folder: ""


def cli(*arguments: str) -> Callable[[], None]:
    def do() -> None:
        from adafed.cli import main

        sys.argv = ["adafed", *arguments]
        main()

    return do


# What must be whole, and what must be the same


def damaged(folder: Path) -> str | None:
    """The first file below the folder that is not whole under its real name."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.name.startswith(".") or file.suffix == ".part":
            continue
        try:
            if file.suffix == ".json":
                json.loads(file.read_text())
            elif file.suffix == ".sqlite":
                shutil.copytree(file.parent, folder.parent / "looked-at", dirs_exist_ok=True)
                database = sqlite3.connect(folder.parent / "looked-at" / file.name)
                (told,) = database.execute("PRAGMA integrity_check").fetchone()
                database.close()
                shutil.rmtree(folder.parent / "looked-at")
                if told != "ok":
                    return f"{file}: {told}"
            elif file.suffix == ".safetensors":
                with safe_open(file, framework="pt") as content:
                    for name in content.keys():  # noqa: SIM118  # not a dict
                        content.get_tensor(name)
            elif file.suffix == ".html" and not file.read_text().rstrip().endswith("</html>"):
                return f"{file}: cut short"
        except (ValueError, sqlite3.Error, SafetensorError) as error:
            return f"{file}: {error}"
    return None


def runs(folder: Path) -> str:
    """The bits of every run below the folder: rows, models, checkpoints, what clients keep."""
    found = hashlib.sha256()
    for database in sorted(folder.rglob("rounds.sqlite")):
        found.update(str(database.relative_to(folder)).encode())
        db = sqlite3.connect(database)
        for table in ("rounds", "participants", "evaluations"):
            found.update(repr(db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4").fetchall()).encode())
        db.close()
        for file in sorted(database.parent.rglob("*.safetensors")):
            found.update(file.name.encode())
            for name, tensor in sorted(load_file(file).items()):  # where in memory.rows an update lies is no bit of it
                found.update(name.encode() + tensor.numpy().tobytes())
    for file in sorted(folder.rglob("*.partial")):
        found.update(file.name.encode())  # nothing half written may stay
    return found.hexdigest()


def every_file(folder: Path) -> str:
    found = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        found.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return found.hexdigest()


# The commands


def experiment(folder: Path) -> None:
    (folder / "experiment.toml").write_text(TOML)


def one_run(folder: Path) -> None:
    """A finished run, to report on."""
    from adafed.config.loading import load_config
    from adafed.engines.local.simulate import simulate

    experiment(folder)
    list(simulate(load_config(folder / "experiment.toml"), directory=folder / "run"))


class _Slow(http.server.SimpleHTTPRequestHandler):
    """Understands ranges, as publishers' servers do, and takes its time."""

    def do_GET(self) -> None:
        content = CONTENT
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        for k in range(start, len(content), 2**18):
            try:
                self.wfile.write(content[k : k + 2**18])
            except OSError:
                return
            time.sleep(0.01)

    def log_message(self, *_: object) -> None:
        pass


CONTENT = Random(1).randbytes(12 * 2**20)


def download(port: int) -> None:
    from adafed.data.download import Remote, fetch

    md5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    fetch(Remote(f"http://127.0.0.1:{port}/samples.bin", md5, len(CONTENT)), Path("data"), show=False)


def on_flower() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "engines" / "flower"))
    import logging

    from pretend import PretendGrid

    from adafed.config.loading import load_config
    from adafed.engines.flower.experiment import experiment_client, run_experiment

    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = load_config("experiment.toml")
    grid = PretendGrid(experiment_client(config, **{"client-dir": "nodes"}), 3)
    run_experiment(grid, config, Path("run"), nodes=3)


def commands(port: int) -> dict[str, Command]:
    page = functools.partial(cli, "report", "run", "--out", "page.html")
    found = {
        "run": Command(cli("run", "experiment.toml", "--out", "run", "-q", "--continue"), experiment, runs),
        "workers": Command(
            cli("run", "experiment.toml", "--out", "run", "-q", "--continue", "--workers", "2", "--no-report"),
            experiment, runs,
        ),
        "compare": Command(cli("compare", "experiment.toml", "--out", "out", "-q"), experiment, runs),
        "jobs": Command(
            cli("compare", "experiment.toml", "--out", "out", "-q", "--jobs", "2", "--seeds", "0"), experiment, runs
        ),
        "tune": Command(
            cli("tune", "experiment.toml", "--rates", "0.1,1", "--momenta", "0", "--out", "out", "-q",
                "--set", "server.step=rate"),
            experiment, runs,
        ),
        "report": Command(page("--tables", "tables"), one_run, lambda folder: every_file(folder / "tables")),
        "download": Command(functools.partial(download, port), bits=every_file),
    }  # fmt: skip
    if os.environ.get("ADAFED_DATA"):
        arguments = ("reproduce", "fashion", "--profile", "smoke", "--out", "out", "-q", "-m", "FedAvg", "-m", "AdaFed")
        found["reproduce"] = Command(cli(*arguments), bits=runs)
    try:
        import flwr  # noqa: F401

        found["flower"] = Command(on_flower, experiment, runs)
    except ModuleNotFoundError:
        pass
    return found


# Killing


def begun(command: Command, folder: Path) -> int:
    """The command in a process of its own, forked; its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.chdir(folder)
        with (folder / ".log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        command.do()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(child: int) -> list[psutil.Process]:
    """The process is killed; those of its children that go on."""
    try:
        children = psutil.Process(child).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    os.kill(child, signal.SIGKILL)
    ended(child)
    return psutil.wait_procs(children, timeout=60)[1]


def attempt(command: Command, where: Path, random: Random, longest: float, most: int) -> tuple[int, str | None]:
    """The command, killed up to so many times and then left to end; how many kills there were, and what was wrong."""
    folder, kills = where / "killed", 0
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command.prepare(folder)
    for _ in range(most):
        child = begun(command, folder)
        time.sleep(random.random() * longest)
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        kills += 1
        if left := killed(child):
            return kills, f"{len(left)} processes go on after the kill"
        if fault := damaged(folder):
            return kills, fault
    code = ended(begun(command, folder))
    if code:
        return kills, f"it ended with {code} afterwards: {(folder / '.log').read_text().strip()[-300:]}"
    if fault := damaged(folder):
        return kills, fault
    return kills, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="kills in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="some of the commands, as in run,compare")
    told = parser.parse_args()
    torch.set_num_threads(1)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    import adafed.cli
    import adafed.engines.local.simulate
    import adafed.page
    import adafed.studies.tune  # noqa: F401  # all imported once, before anything is forked

    there = commands(server.server_address[1])
    chosen = told.only.split(",") if told.only else list(there)
    random, kills, faults = Random(told.seed), dict.fromkeys(chosen, 0), 0
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        alone: dict[str, tuple[str, float]] = {}
        for name in chosen:
            folder = Path(scratch) / name / "whole"
            folder.mkdir(parents=True)
            there[name].prepare(folder)
            clock = time.monotonic()
            if code := ended(begun(there[name], folder)):
                sys.exit(f"{name} ends with {code} when it is left alone: {(folder / '.log').read_text()[-300:]}")
            (folder / ".log").unlink()
            alone[name] = there[name].bits(folder), time.monotonic() - clock
        while sum(kills.values()) < told.count:
            for name in chosen:
                most = min(MOST, told.count - sum(kills.values()))
                bits, longest = alone[name]
                where = Path(scratch) / name
                done, fault = attempt(there[name], where, random, longest, most) if most > 0 else (0, None)
                kills[name] += done
                if fault is None and most > 0:
                    (where / "killed" / ".log").unlink(missing_ok=True)
                    fault = None if there[name].bits(where / "killed") == bits else "other bits than when left alone"
                if fault is not None:
                    faults += 1
                    print(f"{name}: {fault}", flush=True)
            print(f"{sum(kills.values())} of {told.count} kills, {faults} faults so far", file=sys.stderr, flush=True)
    for name, count in kills.items():
        print(f"{name:10} killed {count} times")
    print(f"{sum(kills.values())} kills, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
