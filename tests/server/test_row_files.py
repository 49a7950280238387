"""Where remembered updates lie: places that are written once, given back when nobody names them, and checked."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch

from adafed import AdafedError
from adafed.algebra.stored import STORAGES, Storage, StoredRow
from adafed.server.row_files import PlacedRow, RowFile, RowStore


@pytest.mark.parametrize("storage", STORAGES)
def test_what_is_added_can_be_found(storage: Storage, tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows", 1000, storage)
    rows = [file.add(np.full(1000, k, np.float32)) for k in range(150)]  # more than one map's worth
    assert [row.place for row in rows] == list(range(150))
    again = RowFile(tmp_path / "rows", 1000, storage).find([(row.place, row.total) for row in rows])
    for k, row in enumerate(again):
        assert torch.allclose(row.tensor(), torch.full((1000,), float(k)), rtol=0.01)


def test_a_place_is_taken_again_when_nobody_names_it(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows", 10, "float32")
    kept = [file.add(np.full(10, k, np.float32)) for k in range(4)]
    del kept[1]
    gc.collect()
    assert file.add(np.zeros(10, np.float32)).place == 1
    assert [float(row.tensor()[0]) for row in kept] == [0.0, 2.0, 3.0]


def test_another_update_in_a_place_is_told(tmp_path: Path) -> None:
    """As after a power cut: the checkpoint is there and the row is not, or is an older one."""
    file = RowFile(tmp_path / "rows", 10, "float32")
    row = file.add(np.arange(10, dtype=np.float32))
    with pytest.raises(AdafedError, match="holds another update than its checkpoint says"):
        RowFile(tmp_path / "rows", 10, "float32").find([(row.place, row.total + 1)])
    (tmp_path / "rows").write_bytes(b"short")
    with pytest.raises(AdafedError, match="is shorter than its checkpoint says"):
        RowFile(tmp_path / "rows", 10, "float32").find([(row.place, row.total)])


def test_memory_up_to_the_budget_and_a_file_beyond() -> None:
    store = RowStore("float32", budget=3 * 4000)
    rows = [store.add(torch.full((1000,), float(k))) for k in range(5)]
    assert [isinstance(row, PlacedRow) for row in rows] == [False] * 3 + [True] * 2
    assert [float(row.tensor()[0]) for row in rows if isinstance(row, StoredRow)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    rows[0] = rows[4]
    gc.collect()
    assert not isinstance(store.add(torch.zeros(1000)), PlacedRow)  # there is room again


def test_other_types_stay_what_they_are() -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        row = RowStore().add(torch.ones(5, dtype=dtype))
        assert isinstance(row, torch.Tensor)
        assert row.dtype == dtype


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="could not be written"):
        RowStore(path=tmp_path / "no" / "rows").add(torch.zeros(5))
