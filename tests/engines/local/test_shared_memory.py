"""Memory that several processes see: without a name, within its budget."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from adafed import AdafedError, aggregate, rule
from adafed.algebra.gram import gram
from adafed.algebra.rows import Rows
from adafed.algebra.weighted_sum import weighted_sum
from adafed.engines.local.shared_memory import SharedRows, attach


@pytest.mark.parametrize("budget", [10**6, 0])
def test_what_one_writes_the_other_reads(budget: int, tmp_path: Path) -> None:
    here = SharedRows.create(3, 5, budget=budget, directory=tmp_path)
    assert here.on_disk == (budget == 0)
    there = attach(3, 5, os.dup(here.descriptor), on_disk=here.on_disk)
    there.tensor.fill_(2.0)
    there.release()
    assert (here.array == 2.0).all()
    here.release()
    assert (here.tensor == 2.0).all()
    assert not list(tmp_path.iterdir())
    before = psutil.Process().num_fds()
    here.close()
    here.close()
    assert psutil.Process().num_fds() == before - 1
    assert (here.array == 2.0).all()
    there.close()


def test_memory_that_is_not_there_is_told() -> None:
    with pytest.raises(AdafedError, match="could not be attached"):
        attach(1, 1, 10**6, on_disk=False)


def resident_files() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile:")) * 1024


def test_a_pass_over_a_file_keeps_none_of_its_pages(tmp_path: Path) -> None:
    count, length = 256, 2**16
    shared = SharedRows.create(count, length + 3, budget=0, directory=tmp_path)
    shared.array[:] = np.random.default_rng(0).standard_normal(shared.array.shape, dtype=np.float32)
    shared.release()
    rows = Rows(shared.rows(count, length))
    before = resident_files()
    matrices = [gram(rows, precise=precise) for precise in (False, True)]
    direction = weighted_sum(rows.select(range(1, count)), np.ones(count - 1))
    assert resident_files() - before < shared.array.nbytes / 8  # code of libraries, loaded as it is first used
    in_memory = shared.tensor[:, :length].clone()
    for precise, matrix in zip((False, True), matrices, strict=True):
        assert (matrix == gram(Rows(in_memory), precise=precise)).all()
    assert torch.equal(direction, weighted_sum(Rows(in_memory[1:]), np.ones(count - 1)))
    shared.close()


def test_a_rule_reads_a_file_as_it_reads_memory(tmp_path: Path) -> None:
    shared = SharedRows.create(6, 50_000, budget=0, directory=tmp_path)
    shared.tensor.normal_(generator=torch.Generator().manual_seed(1))
    losses = [1.0, 2.0, 3.0, 1.0, 2.0, 0.5]
    for name in ("adafed", "fedavg", "fedmgda+", "fedfv"):
        found = [
            aggregate(rule(name), updates, losses=losses, sizes=[5] * 6)
            for updates in (shared.rows(6, 50_000), shared.tensor.clone())
        ]
        assert torch.equal(found[0].direction, found[1].direction)
    shared.close()
