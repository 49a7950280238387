"""Writes an app that `flwr run` takes: an experiment, and the two files that hand it to Flower."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from typing import Any

import tomli_w

from adafed.config.configuration import Config
from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence, write_whole

SERVER = '''"""The server's side: runs experiment.toml and saves every round in the run directory."""

from pathlib import Path

from adafed.flower import experiment_server

app = experiment_server(Path(__file__).parent.parent / "experiment.toml")
'''
CLIENT = '''"""The clients' side: trains the clients that a node holds, by its partition-id and num-partitions."""

from pathlib import Path

from adafed.flower import experiment_client

app = experiment_client(Path(__file__).parent.parent / "experiment.toml")
'''
PROJECT = """# Run it:  flwr run . local --stream --federation-config "num-supernodes={nodes}"
# Dependencies stay empty: with any, every run would install them anew instead of using what is installed.
[project]
name = "{name}"
version = "1.0.0"
description = "A fair federated experiment"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "adafed"

[tool.flwr.app.components]
serverapp = "fairapp.server_app:app"
clientapp = "fairapp.client_app:app"

# Every key can be changed for one run: flwr run . NAME -c 'set="rounds=2 rule.gamma=5" nodes=3'
[tool.flwr.app.config]
set = ""                # keys of experiment.toml, as in "rounds=2 rule.gamma=5"
run-dir = {folder}
nodes = {nodes}               # the run begins when so many are connected
timeout = 3600.0        # seconds a round waits for its clients
evaluate-every = 0      # rounds between evaluations of all clients; 0: once, after the last
"""

SPEC = re.compile(r"([A-Za-z_]\w*)(\.\w+)*:[A-Za-z_]\w*(\.\w+)*")  # module:attribute


def new_app(folder: str | Path, config: Config, nodes: int) -> Path:
    """The app's folder. Its name becomes the app's, so far as Flower allows."""
    root = Path(folder).resolve()
    with full_disk_in_a_sentence(root):
        if root.exists() and any(root.iterdir()):
            raise AdafedError(f"{root} is there and not empty; name a new folder")
    name = re.sub(r"[^a-z0-9-]+", "-", root.name.lower()).strip("-")[:32] or "fair-app"
    package = root / "fairapp"
    with full_disk_in_a_sentence(root):
        package.mkdir(parents=True)
    run = tomli_w.dumps({"folder": str(root / "run")}).partition("=")[2].strip()
    files = {
        root / "pyproject.toml": PROJECT.format(name=name, nodes=nodes, folder=run),
        root / "experiment.toml": config.to_toml(),
        package / "__init__.py": "",
        package / "server_app.py": SERVER,
        package / "client_app.py": CLIENT,
    }
    for file, content in files.items():
        write_whole(file, content.encode())
    return root


def copy_own(root: Path, config: Config) -> tuple[list[str], list[str]]:
    """Copies the user's modules into the app, which is all that nodes have: those in the current directory that the
    experiment names, and those there that they have imported. Returns their files, and the named modules elsewhere."""
    here = Path.cwd()
    named = {found[1] for text in _texts(tomllib.loads(config.to_toml())) if (found := SPEC.fullmatch(text))}
    named.discard("adafed")
    copied, elsewhere = [], []
    for name in sorted(named | ({one for one in sys.modules if one.isidentifier()} - {"adafed"} if named else set())):
        file, package = here / f"{name}.py", here / name
        first = package / "__init__.py"  # Python's own order
        imported = getattr(sys.modules.get(name), "__file__", None)
        if name not in named and (imported is None or Path(imported).resolve() not in (file, first)):
            continue
        with full_disk_in_a_sentence(root):
            if first.is_file() or (not file.is_file() and package.is_dir()):
                copytree(package, root / name, ignore=ignore_patterns("__pycache__"))
                copied.append(f"{name}/")
            elif file.is_file():
                copy(file, root)
                copied.append(file.name)
            else:
                elsewhere.append(name)
    return copied, elsewhere


def _texts(content: Any) -> Iterator[str]:
    """All that are written in a TOML."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for one in content.values() if isinstance(content, dict) else content:
            yield from _texts(one)
