"""The notebook of examples/ and its script are one text, and both run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
nbformat = pytest.importorskip("nbformat")
SHORT = ("rounds=60", "rounds=10")


def script() -> str:
    return (ROOT / "examples" / "quickstart.py").read_text()


def test_the_notebook_is_the_script() -> None:
    spec = importlib.util.spec_from_file_location("notebook_script", ROOT / "scripts" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kept = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    wanted = module.notebook(script())
    assert [cell.source for cell in kept.cells] == [cell.source for cell in wanted.cells], "python scripts/notebook.py"
    assert len([cell for cell in kept.cells if cell.cell_type == "code"]) <= 10


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    kept = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    for cell in kept.cells:
        cell.source = cell.source.replace(*SHORT)
    nbclient.NotebookClient(kept, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = "".join(output.get("text", "") for cell in kept.cells for output in cell.get("outputs", []))
    assert "adafed  mean" in told
    assert "rates" in told
    assert any("image/png" in output.get("data", {}) for cell in kept.cells for output in cell.get("outputs", []))


@pytest.mark.slow
def test_the_script_runs(tmp_path: Path) -> None:
    (tmp_path / "quickstart.py").write_text(script().replace(*SHORT))
    done = subprocess.run([sys.executable, "quickstart.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "quickstart.png").stat().st_size > 10_000
