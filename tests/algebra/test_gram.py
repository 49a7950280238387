"""The Gram matrix and the weighted sum agree with float64 algebra for every kind of input, scale and conditioning."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from adafed.algebra import gram as module
from adafed.algebra.gram import NOT_FINITE, OUT_OF_RANGE, ZERO, condition, gram, gram_screened, screen
from adafed.algebra.rows import Rows
from adafed.algebra.weighted_sum import cancellation, weighted_sum
from adafed.errors import AdafedError

FLOAT32 = 2.0**-24
quick = settings(max_examples=40, deadline=None)
counts = st.integers(1, 12)
lengths = st.sampled_from([1, 2, 7, 100, 5001, 70_003])
seeds = st.integers(0, 2**31)


def updates_of(seed: int, count: int, length: int, rank: int = 12, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rows of a given rank, with some weight on all coordinates."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(count, min(rank, count), generator=generator, dtype=torch.float64)
    right = torch.randn(min(rank, count), length, generator=generator, dtype=torch.float64)
    return (left @ right).to(dtype)


def exact(updates: torch.Tensor) -> NDArray[np.float64]:
    wide = updates.double()
    return np.asarray((wide @ wide.T).numpy())


def error(matrix: NDArray[np.float64], updates: torch.Tensor) -> float:
    """The largest error of an entry, measured against the lengths of its two rows."""
    expected = exact(updates)
    norms = np.sqrt(expected.diagonal())
    return float(abs((matrix - expected) / np.outer(norms, norms)).max())


@quick
@given(
    seeds, counts, lengths, st.integers(1, 12), st.integers(-15, 15), st.sampled_from([torch.float32, torch.float64])
)
def test_screened_gram_matches_float64_over_rank_and_scale(
    seed: int, count: int, length: int, rank: int, exponent: int, dtype: torch.dtype
) -> None:
    updates = updates_of(seed, count, length, rank, dtype) * 10.0**exponent
    result = gram_screened(Rows(updates))
    assert result.dropped == {}
    assert np.array_equal(result.matrix, result.matrix.T)
    assert error(result.matrix, updates) < 1e-12


@pytest.fixture
def no_small_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the little inputs of a test down the road of the large ones."""
    monkeypatch.setattr(module, "SMALL", 0)


@pytest.mark.usefixtures("no_small_problems")
@pytest.mark.parametrize("exponents", [(-15, -15), (15, 15), (-15, 15), (-38, 30), (-22, 0), (18, 18)])
def test_float32_squares_neither_underflow_nor_overflow(exponents: tuple[int, int]) -> None:
    updates = updates_of(1, 6, 50_000)
    updates *= torch.logspace(*exponents, 6, dtype=torch.float64).float()[:, None]
    result = gram_screened(Rows(updates))
    assert result.dropped == {}
    assert error(result.matrix, updates) < 32 * FLOAT32


@pytest.mark.usefixtures("no_small_problems")
@pytest.mark.parametrize("apart", [1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4])
def test_digits_survive_nearly_parallel_updates(apart: float) -> None:
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(20_000, generator=generator)
    updates = shared + apart * torch.randn(10, 20_000, generator=generator)
    result = gram_screened(Rows(updates))
    assert result.passes == (2 if result.condition > module.TRUSTED_CONDITION else 1)
    assert result.passes == (1 if apart >= 0.1 else 2)
    # The descent identity of the paper: the solution of M y = w meets each client's row exactly.
    wanted = np.linspace(0.5, 2.0, 10)
    solution = np.linalg.solve(result.matrix, wanted)
    direction = weighted_sum(Rows(updates), solution, matrix=result.matrix).double().numpy()
    assert abs(updates.double().numpy() @ direction / wanted - 1).max() < 1e-3


def test_float32_blocks_are_added_in_float64() -> None:
    updates = updates_of(3, 5, 400_000)
    assert error(gram(Rows(updates)), updates) < 8 * FLOAT32
    assert error(gram(Rows(updates), precise=True), updates) < 1e-12


def test_equal_rows_have_an_infinite_or_huge_condition() -> None:
    updates = updates_of(0, 3, 1000)
    assert gram_screened(Rows(torch.cat([updates, updates[:1]]))).condition > 1e12
    assert condition(np.diag([1e-30, 1.0, 1e30])) == pytest.approx(1.0)
    assert condition(np.ones((1, 1))) == 1.0


@quick
@given(seeds, counts, lengths, st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]))
@example(0, 3, 70_003, torch.float32)  # OpenBLAS has another kernel for few rows of up to 16,384 numbers, with AVX-512
def test_every_kind_of_input_gives_the_same_bits(seed: int, count: int, length: int, dtype: torch.dtype) -> None:
    updates = updates_of(seed, count, length, dtype=dtype)
    coefficients = np.random.default_rng(seed).standard_normal(count)
    wide = torch.empty(count, length + 3, dtype=dtype)
    wide[:, 1:-2] = updates
    same = [
        [row.clone() for row in updates],
        updates.T.contiguous().T,
        wide[:, 1:-2],
        updates.clone().requires_grad_(),
    ]
    if dtype != torch.bfloat16:
        same += [updates.numpy(), list(updates.numpy())]
    matrix, direction = gram(Rows(updates)), weighted_sum(Rows(updates), coefficients)
    assert direction.dtype == dtype
    for other in same:
        assert np.array_equal(gram(Rows(other)), matrix)
        assert torch.equal(weighted_sum(Rows(other), coefficients), direction)


def test_memory_maps_give_the_same_bits(tmp_path: Path) -> None:
    updates = updates_of(0, 5, 40_000)
    updates.numpy().tofile(tmp_path / "updates.bin")
    matrix = np.memmap(tmp_path / "updates.bin", np.float32, "r", shape=(5, 40_000))
    vectors = [np.memmap(tmp_path / "updates.bin", np.float32, "r", k * 160_000, (40_000,)) for k in range(5)]
    for kind in (matrix, vectors):
        rows = Rows(kind)
        assert (rows.count, rows.length, rows.dtype) == (5, 40_000, torch.float32)
        assert np.array_equal(gram(rows), gram(Rows(updates)))
        assert torch.equal(weighted_sum(rows, np.arange(5.0)), weighted_sum(Rows(updates), np.arange(5.0)))
        assert torch.equal(rows.block(10, 20), updates[:, 10:20])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bits_do_not_depend_on_threads_or_budget(dtype: torch.dtype) -> None:
    updates = updates_of(0, 40, 600_000, dtype=dtype)
    rows, coefficients, threads = Rows(updates), np.linspace(-1, 1, 40), torch.get_num_threads()
    answers = []
    try:
        for number, budget in [(1, module.MEMORY_BUDGET), (2, module.MEMORY_BUDGET), (4, 0)]:
            torch.set_num_threads(number)
            answers.append(
                (gram(rows, memory_budget=budget), weighted_sum(rows, coefficients, memory_budget=budget), screen(rows))
            )
    finally:
        torch.set_num_threads(threads)
    for matrix, direction, (_, largest) in answers[1:]:
        assert np.array_equal(matrix, answers[0][0])
        assert torch.equal(direction, answers[0][1])
        assert np.array_equal(largest, answers[0][2][1])


def test_block_length_changes_rounding_only(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = updates_of(0, 6, 10_001)
    coefficients = np.linspace(-1, 1, 6)
    direction = weighted_sum(Rows(updates), coefficients, precise=True)
    for step in (1, 64, 999, 4096, 20_000):
        monkeypatch.setattr(module, "block_length", lambda count, step=step: step)
        assert error(gram(Rows(updates)), updates) < 16 * FLOAT32
        assert error(gram(Rows(updates), precise=True), updates) < 1e-12
        assert torch.equal(weighted_sum(Rows(updates), coefficients, precise=True), direction)


@quick
@given(seeds, counts, lengths, st.data())
def test_unusable_rows_are_left_out(seed: int, count: int, length: int, data: st.DataObject) -> None:
    updates = updates_of(seed, count, length)
    bad = data.draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from([float("nan"), float("inf"), 0.0])))
    for row, value in bad.items():
        if value == 0.0:
            updates[row] = 0.0
        else:
            updates[row, data.draw(st.integers(0, length - 1))] = value
    result = gram_screened(Rows(updates))
    assert result.dropped == {row: ZERO if value == 0.0 else NOT_FINITE for row, value in bad.items()}
    assert result.kept.tolist() == [row for row in range(count) if row not in bad]
    kept = updates[torch.from_numpy(result.kept)]
    if len(kept):
        assert error(result.matrix, kept) < 1e-12
    direction = weighted_sum(Rows(updates).select(result.kept), np.ones(len(kept)))
    torch.testing.assert_close(direction.double(), kept.double().sum(0), rtol=1e-5, atol=1e-5)
    finite, largest = screen(Rows(updates))
    assert finite.tolist() == [bool(row.isfinite().all()) for row in updates]
    assert np.array_equal(largest[finite], updates.abs().amax(1).double().numpy()[finite])


@pytest.mark.usefixtures("no_small_problems")
def test_a_non_finite_row_costs_no_second_pass() -> None:
    updates = updates_of(0, 5, 1000)
    updates[1, 3], updates[4] = float("nan"), 0.0
    result = gram_screened(Rows(updates))
    assert result.passes == 1
    assert result.dropped == {1: NOT_FINITE, 4: ZERO}


def test_float64_beyond_its_own_range_is_left_out() -> None:
    updates = updates_of(0, 3, 10, dtype=torch.float64)
    updates[0] *= 1e200
    updates[1] *= 1e-200
    assert gram_screened(Rows(updates)).dropped == {0: OUT_OF_RANGE, 1: OUT_OF_RANGE}


def test_no_usable_row_gives_an_empty_matrix_and_a_zero_sum() -> None:
    rows = Rows(torch.zeros(2, 3))
    result = gram_screened(rows)
    assert result.matrix.shape == (0, 0)
    assert result.condition == 1.0
    assert torch.equal(weighted_sum(rows.select(result.kept), []), torch.zeros(3))


def test_history_rows_follow_the_updates() -> None:
    updates, older = updates_of(0, 3, 500), updates_of(1, 2, 500)
    for history in (older, list(older), older.numpy()):
        assert error(gram(Rows(updates, history)), torch.cat([updates, older])) < 16 * FLOAT32
    assert Rows(updates, []).count == 3
    with pytest.raises(AdafedError, match="same type and device"):
        Rows(updates, older.double())
    with pytest.raises(AdafedError, match=r"different lengths \[499, 500\]"):
        Rows(updates, older[:, 1:])


@quick
@given(seeds, counts, lengths, st.integers(-30, 30), st.sampled_from([torch.float32, torch.float64]))
def test_weighted_sum_is_accurate_at_every_scale(
    seed: int, count: int, length: int, exponent: int, dtype: torch.dtype
) -> None:
    updates = updates_of(seed, count, length, dtype=dtype) * 10.0**exponent
    coefficients = np.random.default_rng(seed).standard_normal(count) * 10.0**-exponent
    direction = weighted_sum(Rows(updates), coefficients)
    weights = torch.from_numpy(coefficients)
    terms = weights.abs() @ updates.double().abs()
    unit = FLOAT32 if dtype == torch.float32 else 2.0**-53
    assert ((direction.double() - weights @ updates.double()).abs() <= 2 * (count + 2) * unit * terms).all()


def test_coefficients_beyond_float32_are_used() -> None:
    updates = torch.tensor([[1e-20, 2e-20], [1e20, 1e20]])
    direction = weighted_sum(Rows(updates), [1e40, 1e-40])
    torch.testing.assert_close(direction, torch.tensor([1e20, 2e20]))


def test_a_sum_that_cancels_is_rounded_once() -> None:
    generator = torch.Generator().manual_seed(0)
    updates = 1 + 1e-4 * torch.randn(2, 1000, generator=generator)
    coefficients, matrix = np.array([1e4, -1e4 / 3 * 3.0001]), exact(updates)
    assert cancellation(matrix, coefficients) > 1e3
    direction = weighted_sum(Rows(updates), coefficients, matrix=matrix)
    # Half a unit of float32, and what float64 makes of terms so much larger than their sum.
    weights = torch.from_numpy(coefficients)
    wanted, terms = weights @ updates.double(), weights.abs() @ updates.double()
    assert ((direction.double() - wanted).abs() <= FLOAT32 * wanted.abs() + 4 * 2.0**-53 * terms).all()
    assert cancellation(np.eye(2), np.array([0.0, 3.0])) == pytest.approx(1.0)
    assert cancellation(np.ones((2, 2)), np.array([1.0, -1.0])) == float("inf")


def test_a_row_with_coefficient_zero_is_not_read() -> None:
    updates = torch.tensor([[1.0, 2.0], [float("nan"), float("inf")], [3.0, 4.0]])
    assert torch.equal(weighted_sum(Rows(updates), [1.0, 0.0, 2.0]), torch.tensor([7.0, 10.0]))


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        (torch.zeros(3), r"shape \(3,\): give K x d"),
        (torch.zeros(0, 3), r"shape \(0, 3\): give at least one row"),
        (torch.zeros(3, 0), r"shape \(3, 0\): give at least one row"),
        ([], "empty list"),
        (torch.zeros(2, 3, dtype=torch.int64), "int64: give float32"),
        (np.zeros((2, 3), np.int32), "int32: give float32"),
        (np.zeros((2, 3), ">f4"), "native byte order"),
        ([torch.zeros(3), torch.zeros(4)], r"different lengths \[3, 4\]"),
        ([torch.zeros(3), torch.zeros(3, 1)], r"updates\[1\] has shape \(3, 1\)"),
        ([torch.zeros(3), torch.zeros(3, dtype=torch.float64)], "float32 on cpu, float64 on cpu: give all"),
        ([[1.0, 2.0]], r"updates\[0\] is a list"),
    ],
)
def test_mistakes_are_told_in_one_sentence(updates: object, words: str) -> None:
    with pytest.raises(AdafedError, match=words):
        Rows(updates)  # type: ignore[arg-type]


@pytest.mark.parametrize(("coefficients", "words"), [([1.0], "one for each of the 2"), ([1.0, np.nan], "finite")])
def test_bad_coefficients_are_refused(coefficients: list[float], words: str) -> None:
    with pytest.raises(AdafedError, match=words):
        weighted_sum(Rows(torch.ones(2, 3)), coefficients)


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_work_space_stays_under_the_budget(count: int, precise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts what the workers allocate: the most that lives at once is workers times the bytes of one."""
    seen = []
    original = module.in_order

    def spy(task, rows, span, at_most=None):  # type: ignore[no-untyped-def]
        seen.append(at_most)
        return original(task, rows, span, at_most)

    monkeypatch.setattr(module, "in_order", spy)
    rows = Rows(torch.ones(count, 3).expand(count, 3)[:, ::2])  # strided, so that blocks are copied
    gram(rows, precise=precise)
    dtype = np.dtype(np.float64 if precise else np.float32)
    step, size = module.step_length(count, dtype), dtype.itemsize
    pieces = step // module.piece_length(count, step)
    one = count * (step + 16) * size + count * count * (pieces * size + 24)
    assert seen[0] == module.MEMORY_BUDGET // one
    assert seen[0] >= 4
    assert rows.buffer(np.dtype(np.float64), step).nbytes <= one * 8 // size


def test_traced_memory_is_a_small_part_of_the_input() -> None:
    import tracemalloc

    updates = list(updates_of(0, 20, 500_000))  # 40 MB, copied block by block
    rows, threads = Rows(updates), torch.get_num_threads()
    budget = 3 * 20 * (module.block_length(20) + 16) * 8
    tracemalloc.start()
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            tracemalloc.reset_peak()
            gram_screened(rows, memory_budget=budget)
            weighted_sum(rows, np.ones(20), precise=True, memory_budget=budget)
            assert tracemalloc.get_traced_memory()[1] < budget + 2**20
    finally:
        tracemalloc.stop()
        torch.set_num_threads(threads)


def test_blas_threads_are_given_back_after_concurrent_use() -> None:
    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    rows = Rows(updates_of(0, 8, 70_000))
    with ThreadPoolExecutor(4) as pool:
        matrices = list(pool.map(lambda _: gram(rows), range(16)))
    assert threads() == before
    assert all(np.array_equal(matrix, matrices[0]) for matrix in matrices)


def test_the_product_of_a_gpu_block_keeps_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    block = updates_of(0, 4, 1000)
    assert error(module._product_on_device(block, False), block) < 32 * FLOAT32
    assert error(module._product_on_device(block, True), block) < 1e-14
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert error(module._product_on_device(block, False), block) < 1e-14


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 22, 23, 100, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_has_as_many_pieces_as_let_other_threads_run(count: int, dtype: type) -> None:
    step = module.step_length(count, np.dtype(dtype))
    piece = module.piece_length(count, step)
    assert step % piece == 0
    if piece > module.SHORTEST_PIECE:
        assert count**2 * (step // piece) > 500
    assert piece == step or count < 23


@pytest.mark.parametrize("length", [1, 511, 512, 4095, 4096, 4097, 32_768, 100_000])
def test_pieces_and_what_is_left_of_a_block_are_all_counted(length: int) -> None:
    updates = updates_of(2, 10, length)
    assert error(gram(Rows(updates)), updates) < 16 * FLOAT32
    assert error(gram(Rows(updates), precise=True), updates) < 1e-12
