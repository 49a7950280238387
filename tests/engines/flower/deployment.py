"""A real SuperLink and real SuperNodes as processes on loopback, which leave nothing behind.

Every process gets FLWR_HOME in the test's own folder and is found again by it, whoever its parent was.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

PATIENCE = 900.0  # seconds; a run took 330 on two cores with a load of 20, and a hung test should still end


class Deployment:
    """`certificates` is a folder made by `make_certificates`; without it the deployment is insecure."""

    def __init__(self, folder: Path, *, certificates: Path | None = None) -> None:
        self.folder = folder
        self.certificates = certificates
        self.home = folder / "flower"
        self.home.mkdir(parents=True)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Deployment:
        secure = f'root-certificates = "{self.certificates}/ca.crt"' if self.certificates else "insecure = true"
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n{secure}\n'
        )
        options = ["--insecure"]
        if self.certificates:
            options = ["--ssl-ca-certfile", f"{self.certificates}/ca.crt",
                       "--ssl-certfile", f"{self.certificates}/server.pem",
                       "--ssl-keyfile", f"{self.certificates}/server.key", "--enable-supernode-auth"]  # fmt: skip
        try:
            self.start("superlink", "flower-superlink", "--host", "127.0.0.1", "--port", self.port,
                       "--disable-runtime-dependency-installation", *options)  # fmt: skip
            wait_for(lambda: listening(self.port), "the SuperLink to listen")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def node(self, part: int, of: int, *, key: str | None = None) -> subprocess.Popen[bytes]:
        options = ["--insecure"]
        if self.certificates:
            name = key or f"node{part}"
            options = ["--root-certificates", f"{self.certificates}/ca.crt",
                       "--auth-supernode-private-key", f"{self.certificates}/{name}"]  # fmt: skip
        return self.start(key or f"node{part}", "flower-supernode", "--superlink", f"127.0.0.1:{self.port}",
                          "--port", free_port(), "--node-config", f"partition-id={part} num-partitions={of}",
                          *options)  # fmt: skip

    def register(self, node: int) -> None:
        self.flwr("supernode", "register", f"{self.certificates}/node{node}.pub", "here")

    def run(self, app: Path, **settings: Any) -> subprocess.Popen[bytes]:
        """`flwr run`, which goes on until the run has ended."""
        values = " ".join(f"{key.replace('_', '-')}={_toml(value)}" for key, value in settings.items())
        name = f"run{sum(one.startswith('run') for one in self.processes)}"
        return self.start(name, "flwr", "run", app, "here", "--stream", "-c", values)

    def flwr(self, *arguments: object) -> None:
        name = f"flwr{len(self.processes)}"
        process = self.start(name, "flwr", *arguments)
        assert process.wait(timeout=PATIENCE) == 0, self.log(name)

    def start(self, name: str, program: str, *arguments: object) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).parent / program), *map(str, arguments)]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self.environment(),
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        return self.processes[name]

    def environment(self) -> dict[str, str]:
        here = str(Path(sys.executable).parent)
        return os.environ | {
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([here, os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        }

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)[-2000:]}" for name in self.processes)

    def mine(self, word: str = "") -> list[psutil.Process]:
        """All processes of this deployment, or those with `word` in their command."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("FLWR_HOME") == str(self.home) and word in " ".join(process.cmdline()):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def kill(self, processes: list[psutil.Process]) -> None:
        """With -9, all of them."""
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue

    def close(self) -> None:
        for _ in range(20):  # a process may be starting another as it dies
            left = self.mine()
            if not left:
                break
            self.kill(left)
            psutil.wait_procs(left, timeout=2)
        for process in self.processes.values():  # also those that were just ending: nobody else waits for them
            process.wait(timeout=PATIENCE)
        assert not self.mine()


def _toml(value: object) -> str:
    return str(value) if isinstance(value, int | float) else f'"{value}"'


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def listening(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def wait_for(true: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {patience:g} s for {what}")
