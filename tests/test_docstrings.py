"""Every public name says what it is, with its parameters; the examples in docstrings run."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

import adafed
import adafed.flower
import adafed.testing

griffe = pytest.importorskip("griffe")
ROOT = Path(__file__).parents[1]
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (adafed, adafed.flower, adafed.testing)
    for name in module.__all__
    if name != "__version__" and callable(getattr(module, name))
}


def described(found: Any) -> dict[str, set[str]]:
    """Names that the sections of a docstring describe."""
    sections = griffe.Docstring(inspect.getdoc(found) or "").parse("google")
    kinds = ("parameters", "attributes", "returns", "yields", "raises")
    return {
        section.kind.value: {getattr(one, "name", "") or "" for one in section.value}
        for section in sections
        if section.kind.value in kinds
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_what_it_is(name: str) -> None:
    found = PUBLIC[name]
    text = inspect.getdoc(found)
    assert text
    assert not text.startswith(f"{name.rpartition('.')[2]}("), "dataclasses' own text"
    told = described(found)
    if dataclasses.is_dataclass(found):
        fields = {field.name for field in dataclasses.fields(found)}
        assert fields <= told.get("attributes", set()), fields - told.get("attributes", set())
    elif hasattr(found, "model_fields"):
        assert set(found.model_fields) <= told["attributes"]
    elif inspect.isroutine(found) or found is adafed.flower.FairStrategy:
        wanted = {
            f"**{p.name}" if p.kind is p.VAR_KEYWORD else p.name for p in inspect.signature(found).parameters.values()
        }
        assert wanted == told.get("parameters", set())
        returned = inspect.signature(found).return_annotation
        if inspect.isroutine(found) and returned not in (None, "None", inspect.Signature.empty):
            assert told.keys() & {"returns", "yields"}, "what comes back"


def test_every_option_is_described() -> None:
    spec = importlib.util.spec_from_file_location("site_pages_again", ROOT / "scripts" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    assert pages.undescribed() == []


MODULES = sorted(
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    for path in (ROOT / "src" / "adafed").rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed
