"""Time of the server's aggregation, side by side with what a user would run instead, in the same process.

    python benchmarks/aggregate.py [--sizes 10x11000000,100x1000000] [--repeats 7] [--threads 2] [--json FILE]

Every repeat runs each entrant once; a ratio is the median over the repeats of the ratio within a repeat, so that a
slow minute of the machine meets all of them. Torch's thread count holds for everything that is timed.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torchjd.aggregation import MGDA

import adafed
from adafed.algebra.gram import gram_screened
from adafed.algebra.recursion import gram_schmidt_direction
from adafed.algebra.rows import Rows
from adafed.algebra.weighted_sum import weighted_sum

SIZES = "10x11000000,100x1000000,100x11000000"
PAIR = "plain pair: G @ G.T and y @ G, float32"
OURS = "adafed: Gram matrix and weighted sum"
PUBLIC = 'adafed.aggregate(rule("adafed"), ...)'
PAPER = "the paper's Gram-Schmidt recursion"
AVERAGE = "updates.mean(0)"
TORCHJD = "TorchJD MGDA"
# The recursion keeps a second copy of the updates and takes minutes beyond this many numbers.
RECURSION_UP_TO = 500_000_000


def entrants(updates: torch.Tensor, recursion: bool) -> dict[str, Callable[[], object]]:
    count = len(updates)
    losses = torch.linspace(0.5, 2.0, count).tolist()
    coefficients = torch.full((count,), 1.0 / count)
    rule = adafed.rule("adafed")
    mgda = MGDA()

    def pair() -> object:
        return updates @ updates.T, coefficients @ updates

    def ours() -> object:
        rows = Rows(updates)
        found = gram_screened(rows)
        return weighted_sum(rows.select(found.kept), coefficients.numpy(), matrix=found.matrix)

    chosen: dict[str, Callable[[], object]] = {
        PAIR: pair,
        OURS: ours,
        PUBLIC: lambda: adafed.aggregate(rule, updates, losses=losses),
        AVERAGE: lambda: updates.mean(0),
        TORCHJD: lambda: mgda(updates),
    }
    if recursion:
        chosen[PAPER] = lambda: gram_schmidt_direction(updates, losses, 1.0)
    return chosen


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(count: int, length: int, repeats: int, shared: float, recursion: bool) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    common = torch.empty(length).normal_(generator=generator).mul_(shared)
    updates = torch.empty(count, length)
    for row in updates:
        row.normal_(generator=generator).add_(common)
    calls = entrants(updates, recursion)
    memory = {PUBLIC: extra_memory(calls[PUBLIC])}  # first, while no freed memory is there to be used again
    for name, call in calls.items():  # a first call pays for imports and pages of memory
        if name != PAPER:
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats):
        for name, call in calls.items():
            if name != PAPER or repeat < 3:  # the slowest by far, and its ratio the least in doubt
                seconds[name].append(timed(call))
    return {"clients": count, "length": length, "seconds": seconds, "extra_memory_mb": memory}


def extra_memory(call: Callable[[], object]) -> float | None:
    """Peak resident memory of a call beyond what was resident before, in MB: the answer included; Linux only."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    try:
        reset.write_text("5")
    except OSError:
        return None
    before = _status("VmRSS")
    call()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def ratio(result: dict[str, Any], name: str, baseline: str) -> float | None:
    seconds: dict[str, list[float]] = result["seconds"]
    if name not in seconds or baseline not in seconds:
        return None
    return median(a / b for a, b in zip(seconds[name], seconds[baseline], strict=False))


def table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['clients']} clients x {result['length']:,} numbers, float32",
        "",
        "| | seconds | to the plain pair | to the mean | recursion takes | extra memory |",
        "|---|---|---|---|---|---|",
    ]
    for name, times in result["seconds"].items():
        slower = ratio(result, PAPER, name)
        memory = result["extra_memory_mb"].get(name)
        cells = [
            name,
            f"{median(times):.4f}",
            f"{ratio(result, name, PAIR):.2f}",
            f"{ratio(result, name, AVERAGE):.1f}",
            "-" if slower is None else f"{slower:.1f} times as long",
            "-" if memory is None else f"{memory:.0f} MB",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parsed_size(text: str) -> tuple[int, int]:
    try:
        count, length = (int(part) for part in text.split("x"))
    except ValueError:
        raise SystemExit(f"--sizes has {text!r}: give clients x length, such as 10x11000000") from None
    return count, length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=SIZES, help="clients x length, separated by commas; default %(default)s")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=None, help="torch's thread count; default: torch's own")
    parser.add_argument(
        "--shared",
        type=float,
        default=0.0,
        help="weight of a part all updates share; above 41 / sqrt(clients) the Gram matrix is made again, in float64",
    )
    parser.add_argument("--recursion", action="store_true", help="time the paper's recursion at every size")
    parser.add_argument("--json", type=Path, default=None, help="also write every single time to this file")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    sizes = [parsed_size(text) for text in arguments.sizes.split(",")]
    machine = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "repeats": arguments.repeats,
        "shared": arguments.shared,
    }
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    results = []
    for count, length in sizes:
        recursion = arguments.recursion or count * length <= RECURSION_UP_TO
        results.append(measure(count, length, arguments.repeats, arguments.shared, recursion))
        print("\n" + table(results[-1]))
        sys.stdout.flush()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
