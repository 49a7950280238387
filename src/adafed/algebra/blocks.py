"""The walk over the d columns, block by block, on several threads, with results in the order of the columns.

Blocks depend on the number of rows alone and BLAS runs on one thread inside them, so the number of threads changes no
bit of what is summed.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from adafed.algebra.rows import Rows

Result = TypeVar("Result")

MEMORY_BUDGET = 256 * 2**20  # bytes of work space beyond the updates and the answer
BLOCKS_A_TASK = 8


def block_length(count: int) -> int:
    """Columns in a block: about two million numbers, no more than keeps float32 sums exact, no less than is fast."""
    return 1 << min(max((2**21 // max(count, 1)).bit_length() - 1, 10), 15)


def in_order(task: Callable[[int, int], Result], rows: Rows, span: int, at_most: int | None = None) -> Iterator[Result]:
    """Run task(start, stop) for each span of columns on torch's number of threads, or on that of `walking_with`; the
    results come in order."""
    starts = range(0, rows.length, span)
    threads = _threads.get() or torch.get_num_threads()
    workers = min(threads if rows.on_cpu else 1, len(starts), os.cpu_count() or 1)
    if at_most is not None:
        workers = max(1, min(workers, at_most))
    with one_blas_thread():
        if workers == 1:
            for start in starts:
                yield task(start, min(start + span, rows.length))
            return
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(workers) as pool:
            for start in starts:
                if len(waiting) > workers:  # a slow reader must not let results pile up
                    yield waiting.popleft().result()
                waiting.append(pool.submit(task, start, min(start + span, rows.length)))
            while waiting:
                yield waiting.popleft().result()


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
