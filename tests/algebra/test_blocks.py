"""The walk over the columns: in order, with no more results than the reader can keep up with, on threads that stay."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from adafed.algebra import blocks
from adafed.algebra.blocks import BLOCKS_A_TASK, block_length, in_order, walking_with, wide_block_length
from adafed.algebra.rows import Rows

LENGTH = 1001


@pytest.fixture(autouse=True)
def many_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PROCESSORS", 8)


def rows(length: int = LENGTH) -> Rows:
    return Rows(torch.ones(2, length))


def spans(step: int, threads: int) -> list[tuple[int, int]]:
    def task(start: int, stop: int) -> tuple[int, int]:
        time.sleep(0.002 * (start % 3))  # so that tasks end in another order than they began in
        return start, stop

    with walking_with(threads):
        return list(in_order(task, rows(), step))


@pytest.mark.parametrize("step", [1, 10, 50, 999, 1001, 5000])
def test_spans_cover_the_columns_in_order_for_every_number_of_threads(step: int) -> None:
    alone = spans(step, 1)
    assert [start for start, _ in alone] == [0, *(stop for _, stop in alone[:-1])]
    assert alone[-1][1] == LENGTH
    assert all((stop - start) % step == 0 and stop - start <= BLOCKS_A_TASK * step for start, stop in alone[:-1])
    for threads in (2, 3, 8):
        assert spans(step, threads) == alone


def test_short_updates_are_shared_out_too() -> None:
    assert len(spans(100, 2)) == 11
    assert len(spans(10, 2)) == 13  # of eight blocks each


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_error_reaches_the_caller_and_ends_the_walk(threads: int) -> None:
    running = []

    def task(start: int, stop: int) -> None:
        running.append(start)
        if start == 3 * BLOCKS_A_TASK:
            raise ZeroDivisionError("in a task")
        time.sleep(0.001)
        running.remove(start)

    with walking_with(threads), pytest.raises(ZeroDivisionError, match="in a task"):
        list(in_order(task, rows(), 1))
    assert running == [3 * BLOCKS_A_TASK]  # nobody is at work any more


@pytest.mark.parametrize("threads", [2, 4])
def test_a_slow_reader_lets_no_results_pile_up(threads: int) -> None:
    made = []
    with walking_with(threads):
        results: Iterator[None] = in_order(lambda start, stop: made.append(start), rows(), 1)
        for read in range(1, 11):
            next(results)
            time.sleep(0.005)
            assert len(made) <= read + 2 * threads
        results.close()
    time.sleep(0.02)
    assert len(made) <= 10 + 2 * threads


@pytest.mark.parametrize("at_most", [0, 1, 2, 3])
def test_no_more_tasks_at_once_than_allowed(at_most: int) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def task(start: int, stop: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1

    with walking_with(8):
        list(in_order(task, rows(), 5, at_most))
    assert most <= max(at_most, 1)


def test_threads_stay() -> None:
    spans(10, 3)
    before = set(threading.enumerate())
    spans(10, 3)
    assert set(threading.enumerate()) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    spans(10, 2)
    assert blocks._pools
    kept = dict(blocks._pools)
    blocks._forget_pools()  # what a fork calls in the child; a child of a test process would run the other tests' exits
    assert not blocks._pools
    assert spans(10, 2) == spans(10, 1)
    for pool in blocks._pools.values():
        pool.shutdown()
    blocks._pools.clear()
    blocks._pools.update(kept)


@pytest.mark.parametrize("count", [1, 2, 10, 100, 333, 1000, 5000])
def test_blocks_of_float64_are_small_but_no_smaller_than_their_product(count: int) -> None:
    step = wide_block_length(count)
    assert step <= block_length(count)
    assert step >= min(count, block_length(count))
    assert step * count <= max(2**17, 2 * count * count)
