"""Rooms import only what stands above them, and few modules stand outside of any."""

from __future__ import annotations

import ast
from pathlib import Path

import adafed

ROOT = Path(adafed.__file__).parent
ORDER = [
    {"errors", "version", "visible"},
    {"imported", "files", "randomness"},
    {"registry"},
    {"metrics"},
    {"algebra"},
    {"data"},
    {"models"},
    {"server_rules"},
    {"server"},
    {"training"},
    {"client_rules"},
    {"attacks"},
    {"config"},
    {"rounds"},
    {"runs"},
    {"engines"},
    {"report"},
    {"studies"},
    {"page"},
    {"paper"},
    {"testing", "flower"},
    {"commands"},
    {"cli"},
    {"__init__", "__main__"},
]
PLACE = {room: place for place, rooms in enumerate(ORDER) for room in rooms}


def imports(file: Path) -> set[str]:
    """The rooms that a file imports from, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "adafed":
            names += [f"adafed.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("adafed.")}
    return found


def test_every_import_points_down() -> None:
    upward = []
    for file in sorted(ROOT.rglob("*.py")):
        room = file.relative_to(ROOT).parts[0].removesuffix(".py")
        others = imports(file) - {room, "__version__"}
        upward += [f"{file.relative_to(ROOT)} imports {other}" for other in others if PLACE[other] >= PLACE[room]]
    assert not upward


def test_few_modules_stand_outside_of_any_room() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 12


def test_no_client_side_method_has_code_outside_its_own() -> None:
    """FedCorr was once in a dozen modules. The data pipeline cites it, for how labels are made wrong, how samples are
    shared out and how Clothing1M's pictures are prepared."""
    own = ROOT / "client_rules"
    others = [file for file in ROOT.rglob("*.py") if "fedcorr" in file.read_text().lower() and own not in file.parents]
    assert {file.relative_to(ROOT).as_posix() for file in others} <= {
        "data/noise.py", "data/partition.py", "data/clothing.py",
    }  # fmt: skip
