"""The user's own data, from a folder of npz files or from a function."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adafed.data import folder as folder_module
from adafed.data.arrays import ArraysFederation
from adafed.data.base import Dataset, Federation
from adafed.data.folder import FolderFederation
from adafed.data.function import from_function
from adafed.errors import AdafedError
from adafed.imported import attribute


def arrays(samples: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"x": random.normal(size=(samples, 3)), "y": random.integers(0, 4, size=samples)}


def write(path: Path, **changed: Any) -> None:
    np.savez(path, **{key: value for key, value in {**arrays(), **changed}.items() if value is not None})


@pytest.fixture
def three(tmp_path: Path) -> Path:
    for k, client in enumerate(["ann", "bob", "cid"]):
        np.savez(tmp_path / f"{client}.npz", **arrays(20 + 10 * k, seed=k))
    return tmp_path


def test_a_folder_is_a_federation(three: Path) -> None:
    federation: Federation = FolderFederation(three)
    assert federation.ids == ("ann", "bob", "cid")
    assert (federation.name, federation.classes, federation.input_shape) == (three.name, 4, (3,))
    assert federation.train_sizes.tolist() == [16, 24, 32]
    for k in range(3):
        client, given = federation.client(k), arrays(20 + 10 * k, seed=k)
        parts = (client.train, client.validation, client.test)
        assert [len(part) for part in parts] == [16 + 8 * k, 2 + k, 2 + k]
        rows = np.concatenate([part.inputs for part in parts])
        assert rows.dtype == np.float32
        assert np.array_equal(np.sort(rows, axis=0), np.sort(given["x"].astype(np.float32), axis=0))


def test_only_headers_are_read_up_front(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an array was read")

    with monkeypatch.context() as patch:
        patch.setattr(folder_module.np, "load", refuse)
        federation = FolderFederation(three, classes=4)
        assert federation.classes == 4
        assert federation.train_sizes.sum() == 72
    assert len(federation.client(1).train) == 24


def test_parts_the_client_brings_are_kept(tmp_path: Path) -> None:
    brought = arrays(7, seed=9)
    write(tmp_path / "a.npz", x_test=brought["x"], y_test=brought["y"])
    federation = FolderFederation(tmp_path)
    client = federation.client(0)
    assert np.array_equal(client.test.inputs, brought["x"].astype(np.float32))
    assert (len(client.train), len(client.validation)) == (18, 2)
    assert federation.train_sizes.tolist() == [18]


def test_seed_and_content_are_in_the_checksum(three: Path) -> None:
    first, again, other = (FolderFederation(three, seed=seed) for seed in (0, 0, 1))
    assert first.checksum == again.checksum != other.checksum
    assert np.array_equal(first.client(0).test.inputs, again.client(0).test.inputs)
    assert not np.array_equal(first.client(0).test.inputs, other.client(0).test.inputs)
    write(three / "ann.npz", y=np.zeros(20, dtype=int))
    assert FolderFederation(three).checksum != first.checksum


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": None}, "the array 'y' is missing"),
        ({"x_test": np.zeros((2, 3))}, "the array 'y_test' is missing"),
        ({"z": np.zeros(3)}, "'z' is none of the arrays x, y, x_validation"),
        ({"y": np.zeros(19, dtype=int)}, r"y has shape \(19,\), x has 20 samples"),
        ({"y": np.zeros(20)}, "y has dtype float64; classes are whole numbers"),
        ({"x": np.array(["a"] * 20)}, "x has dtype <U1"),
        ({"x": np.zeros(20)}, r"x has shape \(20,\); it must be \(samples, ...\)"),
        ({"x": np.zeros((20, 4))}, r"x has samples of shape \(4,\), those of a.npz have \(3,\)"),
        ({"x": np.zeros((0, 3)), "y": np.zeros(0, dtype=int)}, "x has no samples"),
        ({"x": np.zeros((1, 3)), "y": np.zeros(1, dtype=int)}, "1 samples, too few to train and test on"),
        ({"x": np.array([{}] * 20, dtype=object)}, "x.npy holds Python objects, which are not unpickled"),
    ],
)
def test_a_bad_file_is_named_up_front(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    write(tmp_path / "a.npz")
    write(tmp_path / "b.npz", **changed)
    with pytest.raises(AdafedError, match=message) as caught:
        FolderFederation(tmp_path)
    assert str(tmp_path / "b.npz") in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "classes", "message"),
    [
        ({"x": np.full((20, 3), np.nan)}, None, "x holds a number that is not finite"),
        ({"x": np.full((20, 3), 1e300)}, None, "x holds a number that is not finite in float32"),
        ({"y": np.full(20, -1)}, None, "y spans -1 to -1; classes go from 0 up"),
        ({"y": np.full(20, 9)}, 4, "y spans 9 to 9; classes go from 0 to 3"),
    ],
)
def test_bad_content_is_named_when_read(
    tmp_path: Path, changed: dict[str, Any], classes: int | None, message: str
) -> None:
    write(tmp_path / "a.npz", **changed)
    federation = FolderFederation(tmp_path, classes=classes)
    with pytest.raises(AdafedError, match=message):
        federation.client(0)


def test_broken_files(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="is not a folder"):
        FolderFederation(tmp_path / "nowhere")
    with pytest.raises(AdafedError, match="holds no npz files"):
        FolderFederation(tmp_path)
    path = tmp_path / "a.npz"
    path.write_bytes(b"not a zip file")
    with pytest.raises(AdafedError, match=r"a.npz is not a readable npz file: File is not a zip file"):
        FolderFederation(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 3)}"
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(AdafedError, match=r"x.npy is cut short"):
        FolderFederation(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"hello")
    with pytest.raises(AdafedError, match="is not a readable npz file"):
        FolderFederation(tmp_path)


SOURCE = """
import numpy as np
SEED = 3
def pairs(samples=30):
    r = np.random.default_rng(SEED)
    return r.normal(size=(samples, 3)), r.integers(0, 4, size=samples)
def clients():
    return {k: pairs(20) for k in ("a", "b")}
def parts():
    x, y = pairs()
    return {1: {"x": x, "y": y, "x_test": x[:4], "y_test": y[:4]}}
def nothing():
    return None
def empty():
    return {}
def odd():
    return {"a": 3}
def mixed():
    return {"a": (np.zeros((5, 2)), np.zeros(5, int)), "b": (np.zeros((5, 3)), np.zeros(5, int))}
def twice():
    return {1: pairs(), "1": pairs()}
def ragged():
    return [[1.0], [1.0, 2.0]], [0, 1]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current directory, with a name of its own."""
    name = f"made_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    return name


def test_a_function_may_return_one_data_set(here: str) -> None:
    data = from_function(f"{here}:pairs", {"samples": 12})
    assert isinstance(data, Dataset)
    assert (len(data), data.classes, data.inputs.dtype) == (12, 4, np.float32)
    other = from_function(f"{here}:pairs", {"samples": 13})
    assert data.checksum != other.checksum


def test_a_function_may_return_the_clients(here: str) -> None:
    federation = from_function(f"{here}:clients")
    assert isinstance(federation, ArraysFederation)
    checked: Federation = federation
    assert (checked.ids, checked.classes, checked.input_shape) == (("a", "b"), 4, (3,))
    assert checked.train_sizes.tolist() == [16, 16]
    client = checked.client(1)
    assert [len(part) for part in (client.train, client.validation, client.test)] == [16, 2, 2]
    brought = from_function(f"{here}:parts")
    assert isinstance(brought, ArraysFederation)
    assert len(brought.client(0).test) == 4
    assert brought.checksum != federation.checksum


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "returned NoneType; it must return"),
        ("empty", "has no clients"),
        ("odd", r"client a: expected \(x, y\) or a dictionary of arrays, not int"),
        ("mixed", r"inputs differ in shape, \(2,\) \(client a\) and \(3,\) \(client b\)"),
        ("twice", "two clients have the same id"),
        ("ragged", "is not a rectangular array"),
        ("SEED", "is int; it must be a function or a class"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_functions_that_do_not_fit(here: str, function: str, message: str) -> None:
    with pytest.raises(AdafedError, match=message):
        from_function(f"{here}:{function}")


def test_modules_that_do_not_fit(here: str, tmp_path: Path) -> None:
    assert attribute(f"{here}:SEED", "model.name") == 3
    assert attribute("os:path.join", "model.name") is __import__("os").path.join
    with pytest.raises(AdafedError, match=r"model.name = 'mlp' must have the form 'module:attribute'"):
        attribute("mlp", "model.name")
    with pytest.raises(AdafedError, match=r"there is no module 'no_such_thing.at_all'"):
        attribute("no_such_thing.at_all:f", "model.name")
    (tmp_path / f"{here}_broken.py").write_text("import no_such_thing")
    with pytest.raises(AdafedError, match="imports 'no_such_thing', which is missing"):
        attribute(f"{here}_broken:f", "model.name")
    (tmp_path / f"{here}_raises.py").write_text("1 / 0")
    with pytest.raises(AdafedError, match="raised ZeroDivisionError"):
        attribute(f"{here}_raises:f", "model.name")


def test_inputs_of_two_kinds_are_told(tmp_path: Path) -> None:
    """Bytes are images and become shares of 255; floats stay as they are."""
    images = (np.arange(60).reshape(20, 3) % 256).astype(np.uint8)
    write(tmp_path / "ann.npz", x=images)
    write(tmp_path / "bob.npz", x=images.astype(np.float32))
    told = r"inputs differ in kind, images of uint8 \(.*ann.*\) and floats \(.*bob.*\); give all the same"
    with pytest.raises(AdafedError, match=told):
        FolderFederation(tmp_path)
    y = arrays()["y"]
    with pytest.raises(
        AdafedError, match=r"inputs differ in kind, floats .client bob. and images of uint8 .client ann"
    ):
        ArraysFederation("own", {"ann": (images, y), "bob": (images.astype(float), y)})
    none = {"x_validation": np.zeros((0, 3)), "y_validation": np.zeros(0, np.int64)}
    assert ArraysFederation("own", {"ann": {"x": images, "y": y} | none}).ids == ("ann",)


def test_a_function_that_asks_for_the_classes_is_told_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with_classes.py").write_text(
        "import numpy as np\n"
        "def load(classes, n=20):\n    return np.zeros((n, 2), np.float32), np.arange(n) % (classes - 1)\n"
        "def other(n=20):\n    return np.zeros((n, 2), np.float32), np.arange(n) % 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, largest in (("load", 3), ("other", 2)):
        found = from_function(f"with_classes:{name}", {}, classes=5)
        assert isinstance(found, Dataset)
        assert (found.classes, int(found.targets.max())) == (5, largest)
