"""The walk over the d columns, block by block, on several threads, with results in the order of the columns.

Blocks and tasks depend on the shape of the updates alone and BLAS runs on one thread inside them, so the number of
threads changes no bit of what is summed.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

import torch
from threadpoolctl import ThreadpoolController

from adafed.algebra.rows import Rows

Result = TypeVar("Result")

MEMORY_BUDGET = 256 * 2**20  # bytes of work space beyond the updates and the answer
# A task takes up to eight blocks, fewer where that would leave threads without work.
BLOCKS_A_TASK = 8
TASKS = 8
PROCESSORS = os.cpu_count() or 1  # asked once, since the system reads a file to tell


def block_length(count: int) -> int:
    """Columns in a block: about two million numbers, no more than keeps float32 sums exact, no less than is fast."""
    return 1 << min(max((2**21 // max(count, 1)).bit_length() - 1, 10), 15)


def wide_block_length(count: int) -> int:
    """The same for float64, whose sums need no care: about a megabyte, so that it is copied into the cache and short
    updates too have blocks for several threads, but no product larger than the block it is made of."""
    return min(block_length(count), 1 << (max(2**17 // max(count, 1), 2 * count).bit_length() - 1))


def in_order(task: Callable[[int, int], Result], rows: Rows, step: int, at_most: int | None = None) -> Iterator[Result]:
    """Run task(start, stop) for all columns, a few blocks of `step` at a time, on torch's number of threads or on that
    of `walking_with`; the results come in order."""
    span = step * min(max(rows.length // (step * TASKS), 1), BLOCKS_A_TASK)
    starts = range(0, rows.length, span)
    threads = _threads.get() or torch.get_num_threads()
    workers = min(threads if rows.on_cpu else 1, len(starts), PROCESSORS)
    if at_most is not None:
        workers = max(1, min(workers, at_most))
    with one_blas_thread():
        if workers == 1:
            for start in starts:
                yield task(start, min(start + span, rows.length))
            return
        walk = _Walk(task, [(start, min(start + span, rows.length)) for start in starts], 2 * workers)
        helpers = [_pool(workers - 1).submit(walk.help) for _ in range(workers - 1)]
        try:
            yield from walk.results()
        finally:  # a task that failed must not leave others at work on the caller's memory
            walk.stop()
            wait([helper for helper in helpers if not helper.cancel()])


class _Walk(Generic[Result]):
    """Tasks taken one after the other by the helpers and by the thread that reads the results. So each helper is woken
    once in a walk, where handing it every task would take longer than many a task."""

    def __init__(self, task: Callable[[int, int], Result], spans: list[tuple[int, int]], window: int) -> None:
        self._task, self._spans, self._window = task, spans, window
        self._changed = threading.Condition()
        self._done: dict[int, Result] = {}
        self._next = self._read = 0
        self._failed: BaseException | None = None

    def results(self) -> Iterator[Result]:
        for index in range(len(self._spans)):
            while index not in self._done:
                taken = self._take(index)
                if taken is not None:
                    self._run(taken)
                if self._failed is not None:
                    raise self._failed
            with self._changed:
                result, self._read = self._done.pop(index), index + 1
                self._changed.notify_all()
            yield result

    def help(self) -> None:
        while (taken := self._take()) is not None:
            self._run(taken)

    def stop(self) -> None:
        with self._changed:
            self._next = len(self._spans)
            self._changed.notify_all()

    def _take(self, wanted: int | None = None) -> int | None:
        """The next task, or none if there is none or the reader has got the result that it wanted."""
        with self._changed:
            while self._failed is None and wanted not in self._done:
                # A slow reader must not let results pile up.
                if self._next < min(len(self._spans), self._read + self._window):
                    self._next += 1
                    return self._next - 1
                if wanted is None and self._next == len(self._spans):
                    return None
                self._changed.wait()
            return None

    def _run(self, index: int) -> None:
        try:
            result = self._task(*self._spans[index])
        except BaseException as error:
            with self._changed:
                self._failed = error
                self._changed.notify_all()
            return
        with self._changed:
            self._done[index] = result
            self._changed.notify_all()


_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def _pool(helpers: int) -> ThreadPoolExecutor:
    """Threads that stay: to start them takes longer than a small problem. A pool for each number of helpers, because
    no more than that many may hold work space at a time."""
    with _pools_lock:
        if helpers not in _pools:
            _pools[helpers] = ThreadPoolExecutor(helpers, thread_name_prefix="adafed-blocks")
        return _pools[helpers]


def _forget_pools() -> None:
    """In a process that was forked: its parent's threads are not there, and its lock may be held by one of them."""
    global _pools_lock
    _pools.clear()
    _pools_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


_threads: ContextVar[int | None] = ContextVar("threads", default=None)


@contextmanager
def walking_with(threads: int) -> Iterator[None]:
    """Another number of threads for the walk than torch has: the server may use cores whose workers are waiting."""
    token = _threads.set(threads)
    try:
        yield
    finally:
        _threads.reset(token)


_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: Any = None
_blas_controller: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold numpy's BLAS to one thread: its own threads would split a block's sums by their number.

    The limit belongs to the process, so the first to come sets it and the last to leave lifts it.
    """
    global _blas_users, _blas_limit, _blas_controller
    with _blas_lock:
        if _blas_users == 0:
            _blas_controller = _blas_controller or ThreadpoolController()
            _blas_limit = _blas_controller.limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()
