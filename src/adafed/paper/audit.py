"""Which printed numbers cannot be true together: arithmetic on the paper's tables, with no other source.

The accuracies a_k of K clients have mean a and standard deviation sigma; the m worst average w, the m best b. Each
bound below holds for every seed and, being convex or linear, for averages over seeds. Rounding to the printed digits is
allowed for and, where m is not a whole share of K, both roundings of m: only what no reading can save is flagged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from adafed.paper.numbers import PrintedTable, table, tables

Findings = dict[str, dict[str, dict[str, str]]]  # table -> method -> metric -> reason

# An angle is not linear in sigma and mean: averages over seeds of the three need not agree to the digit.
_ANGLE_TOLERANCE = 0.5


def audit() -> Findings:
    """Every contradiction, in the form in which the data file stores its flags."""
    found: Findings = {}
    for name in tables():
        printed = table(name)
        for method in printed.methods:
            for metrics, reason in _row(printed, method):
                for metric in metrics:
                    reasons = found.setdefault(name, {}).setdefault(method, {})
                    reasons[metric] = f"{reasons[metric]}; {reason}" if metric in reasons else reason
    return found


SMALLER_IS_BETTER = ("std", "angle", "kl")
PLACES = {"bold": 1, "underlined": 2}


def misplaced() -> list[tuple[str, str, str, str, int]]:
    """Numbers in bold that are not the best of their column, or underlined and not the second best, and numbers of
    these two places that are not marked so, where their column has marks: table, method, metric, mark (or ""), place.
    Equal numbers share the better place."""
    found = []
    for name in tables():
        printed = table(name)
        for metric in printed.columns:
            column = {method: printed.rows[method][metric] for method in printed.methods}
            marked = {method: printed.marks.get(method, {}).get(metric, "") for method in column}
            for method, number in column.items() if any(marked.values()) else ():
                better = [n < number if metric in SMALLER_IS_BETTER else n > number for n in column.values()]
                place, mark = 1 + sum(better), marked[method]
                if PLACES.get(mark, place) != place or (not mark and place <= 2):
                    found.append((name, method, metric, mark, place))
    return found


def _row(printed: PrintedTable, method: str) -> Iterator[tuple[tuple[str, ...], str]]:
    row = {metric: float(number) for metric, number in printed.rows[method].items()}
    # Half a unit of the last printed digit for each of the numbers that meet in a bound, at most four of them.
    slack = 4 * max(_half_unit(number) for metric, number in printed.rows[method].items() if metric != "kl")
    if "worst" in row:
        yield from _tails(row, _group_sizes(printed), int(printed.setup["clients"] or 0), printed, slack)
    if "angle" in row:
        expected = math.degrees(math.atan(row["std"] / row["mean"]))
        if abs(expected - row["angle"]) > _ANGLE_TOLERANCE:
            yield (
                ("std", "angle"),
                f"the angle to the all-ones vector is atan(sigma / mean) = {expected:.2f}, printed {row['angle']:.2f}",
            )
    if "shirt" in row:
        yield from _clients(row, slack)
    yield from _twins(printed, method)


def _tails(
    row: dict[str, float], shares: list[float], clients: int, printed: PrintedTable, slack: float
) -> Iterator[tuple[tuple[str, ...], str]]:
    mean, std, worst, best = row["mean"], row["std"], row["worst"], row["best"]
    if mean > best + slack:
        yield ("mean", "best"), f"the mean {mean:.2f} exceeds the best clients' {best:.2f}"
    else:
        # All but the worst are at most as good as the best ones' mean.
        highest = max(share * worst + (1 - share) * best for share in shares)
        if mean > highest + slack:
            yield ("mean", "best"), f"worst and best clients allow a mean of at most {highest:.2f}, printed {mean:.2f}"
    lowest = min((1 - share) * worst + share * best for share in shares)
    if mean < lowest - slack:
        yield ("mean", "worst"), f"worst and best clients allow a mean of at least {lowest:.2f}, printed {mean:.2f}"
    lower = min(std_lower_bound(mean, worst, best, share) for share in shares)
    if std < lower - slack:
        yield ("std",), f"worst, best and mean need a sigma of at least {lower:.2f}, printed {std:.2f}"
    if clients:
        upper = max(std_upper_bound(worst, best, clients, round(share * clients)) for share in shares)
        if std > upper + slack:
            yield ("std",), f"worst and best clients allow a sigma of at most {upper:.2f}, printed {std:.2f}"


def std_lower_bound(mean: float, worst: float, best: float, share: float) -> float:
    """The deviation of three groups each of which is all equal: variance within the groups only adds to it."""
    middle = 1 - 2 * share
    rest = (mean - share * (worst + best)) / middle
    return math.sqrt(share * (mean - worst) ** 2 + share * (best - mean) ** 2 + middle * (rest - mean) ** 2)


def std_upper_bound(worst: float, best: float, clients: int, group: int) -> float:
    """The largest deviation with the `group` worst at mean w and the best at b.

    Variance is convex, so it is largest where the clients stand at the ends of what their order allows: half of them
    at w and half at b, or all at b but one, which alone drags its group's mean down to w (or the mirror image).
    """
    gap = max(best - worst, 0.0)
    return gap * max(0.5, group * math.sqrt(clients - 1) / clients)


def _group_sizes(printed: PrintedTable) -> list[float]:
    """The share of clients in a tail: the printed percentage, or either whole number of clients next to it."""
    share, clients = float(printed.setup["tail"]), printed.setup["clients"]
    if clients is None:
        return [share]
    count = round(share * clients, 9)
    return sorted({max(1, math.floor(count)) / clients, math.ceil(count) / clients})


def _clients(row: dict[str, float], slack: float) -> Iterator[tuple[tuple[str, ...], str]]:
    """Fashion-MNIST prints all three clients, so mean and sigma follow (sigma as a lower bound, by convexity)."""
    classes = [row[name] for name in ("shirt", "pullover", "t-shirt")]
    mean = sum(classes) / 3
    if abs(mean - row["mean"]) > slack:
        yield (
            ("mean", "shirt", "pullover", "t-shirt"),
            f"the three classes average {mean:.2f}, printed {row['mean']:.2f}",
        )
    std = math.sqrt(sum((accuracy - mean) ** 2 for accuracy in classes) / 3)
    if row["std"] < std - slack:
        yield ("std",), f"the three classes have a sigma of at least {std:.2f}, printed {row['std']:.2f}"


def _twins(printed: PrintedTable, method: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """AdaFed's row in a main table and the row of its best gamma in the appendix are the same run."""
    from adafed.paper.numbers import best

    gamma = (best(printed.setup_name, "AdaFed") or {}).get("gamma")
    sweep, main = f"{printed.setup_name}-gamma", printed.setup_name
    if gamma is None or sweep not in tables():
        return
    twin_method = f"gamma={gamma:g}"
    if (printed.name, method) == (main, "AdaFed"):
        other, other_method = table(sweep), twin_method
    elif (printed.name, method) == (sweep, twin_method):
        other, other_method = table(main), "AdaFed"
    else:
        return
    for metric, number in printed.rows[method].items():
        twin = other.rows[other_method][metric]
        if twin != number:
            yield (metric,), f"table {other.name} prints {twin} for the same run"


def _half_unit(number: Decimal) -> float:
    exponent = number.as_tuple().exponent
    return 0.5 * 10.0 ** int(exponent)
