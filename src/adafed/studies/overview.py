"""What all kept results say together: set-ups down, methods across, ties as ties; and verdicts in words.

A set-up is a kept file with two seeds or more of FedAvg. Two methods are told apart where the 95 % interval of
their differences, paired over the seeds, does not hold 0.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adafed.errors import AdafedError
from adafed.metrics import METRICS
from adafed.report.figures import Differences, Dot, Line
from adafed.report.tables import column
from adafed.server_rules import rule
from adafed.studies.kept import Kept, KeptRun, load
from adafed.studies.results import Difference, difference

BASE, DEFAULT, FORMER = "FedAvg", "AdaFed (default)", "AdaFed (a former default)"
ALONE, ALL = "AdaFed (default, no memory)", "AdaFed (default), memory"
MEASURES = ("mean", "worst_10", "excess")  # of a cell, from top to bottom
FAIREST = "worst_10"
SHOWN = ("worst_10", "mean")  # of the figure
OFTEN = 3  # a method of so many set-ups has a column of its own, others stand below the table


@dataclass(frozen=True)
class Setup:
    """One kept file. `name` is the file's, without its ending."""

    name: str
    kept: Kept

    @property
    def title(self) -> str:
        profile = self.kept.told.get("profile")
        return self.kept.title if profile is None else f"{self.kept.title}, {profile}"

    @property
    def seeds(self) -> int:
        """Those that methods are compared by, FedAvg's; some may have more or fewer."""
        found = self.methods()
        return len(found[BASE]) if BASE in found else max(len(runs) for runs in found.values())

    def methods(self) -> dict[str, dict[int, KeptRun]]:
        """By the names that tables use; a second method of one name keeps its own."""
        found: dict[str, dict[int, KeptRun]] = {}
        there = self.kept.methods()
        names = {method: spoken(method, next(iter(runs.values()))) for method, runs in there.items()}
        for method, runs in there.items():
            taken = names[method] in found or names.get(names[method]) == names[method]
            found[method if taken else names[method]] = runs
        return found

    def rivals(self) -> list[str]:
        """Methods that serve everyone with one model, and so compete. One that shares a single seed with FedAvg does
        not: nothing could be told apart from it."""
        found, base = self.methods(), self.methods().get(BASE, {})
        enough = min(2, len(base))
        return [
            method
            for method, runs in found.items()
            if not personalised(runs) and len(runs.keys() & base.keys()) >= enough
        ]

    def value(self, method: str, key: str) -> float | None:
        """The mean over the seeds of the last tenth of the rounds."""
        found = [run.tail.get(key) for run in self.methods()[method].values()]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else None

    def difference(self, method: str, to: str, key: str) -> Difference | None:
        """`method` less `to`, over the seeds that both have."""
        ours, theirs = self.methods()[method], self.methods()[to]
        pairs = [(ours[seed].tail.get(key), theirs[seed].tail.get(key)) for seed in sorted(ours.keys() & theirs.keys())]
        known = [a - b for a, b in pairs if a is not None and b is not None]
        return difference(known) if known else None

    def _level(self, method: str, key: str) -> float | None:
        """What ranks a method: how much it is above FedAvg at the seeds that both have."""
        if BASE not in self.methods():
            return self.value(method, key)
        found = self.difference(method, BASE, key)
        return None if found is None else found.mean

    def best(self, key: str) -> list[str]:
        """The best of the rivals, then all that are not told apart from it."""
        better = METRICS[key].direction
        values = {method: self._level(method, key) for method in self.rivals()}
        ranked = sorted((-better * value, method) for method, value in values.items() if value is not None)
        if not ranked:
            return []
        first = ranked[0][1]
        return [first, *(method for _, method in ranked[1:] if not apart(self.difference(method, first, key)))]


def apart(found: Difference | None) -> bool:
    """Whether an interval leaves 0 out; one pair has none."""
    return found is not None and found.half is not None and abs(found.mean) > found.half


def personalised(runs: dict[int, KeptRun]) -> bool:
    return any(run.personalised for run in runs.values())


def spoken(method: str, run: KeptRun) -> str:
    """A rule named on the command line as the tables name it: adafed(gamma=3.0) is "AdaFed, gamma 3".

    The default has changed before: only a run that was told today's options is called by it. One that remembered nobody
    is called so, and so is one that remembered all, whether or not that stayed true.
    """
    found = re.fullmatch(r"adafed(?:\((.*)\))?", method)
    if method in (DEFAULT, f"{DEFAULT}, memory", f"{DEFAULT}, auto") or (found is not None and not found[1]):
        if run.settings.get("rule") != _options_today():
            return FORMER
        return {0: ALONE, "auto": DEFAULT}.get(run.settings.get("memory", 0), ALL)
    if found is None:
        return BASE if method == "fedavg" else method
    options = [option.split("=") for option in found[1].split(", ")]
    if any(len(pair) != 2 for pair in options):  # somebody's own name for it
        return method
    return ", ".join(["AdaFed", *(f"{key} {re.sub(r'[.]0$', '', value)}" for key, value in options)])


def _options_today() -> dict[str, object]:
    return {"name": "adafed", **vars(rule("adafed"))}


def setups(folder: Path) -> tuple[list[Setup], dict[str, str]]:
    """The set-ups of a folder of kept files by title, and why each other file is none."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise AdafedError(f"{folder} has no kept results; adafed reproduce NAME --keep FILE writes them")
    there, left = [], {}
    for file in files:
        setup = Setup(file.stem, load(file))
        if BASE not in setup.methods():
            left[setup.name] = f"no {BASE}"
        elif setup.seeds < 2:  # others may have more, and nothing to be compared with
            left[setup.name] = f"one seed of {BASE}"
        else:
            there.append(setup)
    return sorted(there, key=lambda setup: (setup.title, setup.name)), left


def columns(found: Sequence[Setup]) -> list[str]:
    """Methods of several set-ups: FedAvg first, AdaFed's last but for personalised ones."""
    counts: dict[str, int] = {}
    own = set()
    for setup in found:
        for method, runs in setup.methods().items():
            counts[method] = counts.get(method, 0) + 1
            if personalised(runs):
                own.add(method)
    often = [method for method, count in counts.items() if count >= OFTEN or method == BASE]
    return sorted(often, key=lambda method: (method in own, method.startswith("AdaFed"), method != BASE))


# As Markdown


def table(found: Sequence[Setup]) -> str:
    """A cell has the three measures one below the other; bold are the best and what is not told apart from it."""
    across = columns(found)
    own = {method for setup in found for method, runs in setup.methods().items() if personalised(runs)}
    heads = ["set-up", "", *(f"{method} *" if method in own else method for method in across)]
    labels = "<br>".join(label(key).replace(" ", "&nbsp;") for key in MEASURES)
    lines = [line(heads), line(["---", "---", *("---:" for _ in across)])]
    for setup in found:
        best = {key: setup.best(key) for key in MEASURES}
        cells = [cell(setup, method, best) if method in setup.methods() else "" for method in across]
        lines.append(line([f"{setup.title}<br>{setup.seeds} seeds<br>`{setup.name}`", labels, *cells]))
    return "\n".join(lines) + "\n"


def others(found: Sequence[Setup]) -> str:
    """Methods without a column, one line each."""
    across = set(columns(found))
    lines = []
    for setup in found:
        best = {key: setup.best(key) for key in MEASURES}
        rest = [method for method in setup.methods() if method not in across]
        lines += [line([setup.title, method, *_numbers(setup, method, best)]) for method in rest]
    heads = ["set-up", "method", *(label(key) for key in MEASURES)]
    return "\n".join([line(heads), line(["---", "---", *("---:" for _ in MEASURES)]), *lines]) + "\n"


def verdicts(found: Sequence[Setup]) -> str:
    """Who is fairest, who has the highest mean, and what the default of the package is worth against FedAvg."""
    lines = [line(["set-up", "fairest (worst 10 %)", "highest mean", f"AdaFed's default against {BASE}"])]
    lines.append(line(["---"] * 4))
    for setup in found:
        told = [_told(setup, key) for key in (FAIREST, "mean")]
        lines.append(line([setup.title, *told, _against(setup)]))
    return "\n".join(lines) + "\n"


def left_out(left: dict[str, str]) -> str:
    """The files without a row, by the reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in left.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    return "\n".join(f"- {reason}: {', '.join(names)}" for reason, names in reasons.items()) + "\n"


def _told(setup: Setup, key: str) -> str:
    best = setup.best(key)
    if not best:
        return "nobody has one model for all"
    first, *ties = best
    if len(ties) == len(setup.rivals()) - 1:
        return f"no two told apart ({first} {setup.value(first, key):.1f})"
    return f"**{first}** {setup.value(first, key):.1f}" + (f"; ties: {', '.join(ties)}" if ties else "")


def _against(setup: Setup) -> str:
    ours = next((method for method in (DEFAULT, ALONE) if method in setup.methods()), None)
    if ours is None:
        return "not run"
    told = []
    for key in ("worst_10", "mean"):
        found = setup.difference(ours, BASE, key)
        if found is None or found.half is None:
            told.append(f"{label(key)}: one pair")
            continue
        word = "tie" if not apart(found) else "better" if found.mean > 0 else "worse"
        told.append(f"{label(key)} {word}: {found.mean:+.1f} ± {found.half:.1f}")
    return "<br>".join(told)


def cell(setup: Setup, method: str, best: dict[str, list[str]]) -> str:
    return "<br>".join(_numbers(setup, method, best))


def _numbers(setup: Setup, method: str, best: dict[str, list[str]]) -> list[str]:
    texts = []
    for key in MEASURES:
        value = setup.value(method, key)
        text = "–" if value is None else f"{value:.1f}"
        texts.append(f"**{text}**" if method in best[key] else text)
    return texts


def label(key: str) -> str:
    return column(key).label.removesuffix(" %")


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# As a figure


def panels(found: Sequence[Setup]) -> list[Differences]:
    """Differences to FedAvg of every method with one model, in the order of the fairest."""
    made = []
    for setup in found:
        ranked = sorted(setup.rivals(), key=lambda method: -(setup.value(method, FAIREST) or 0.0))
        lines = [Line(method, tuple(_dot(setup, method, key) for key in SHOWN)) for method in ranked if method != BASE]
        made.append(Differences(f"{setup.title} ({setup.seeds} seeds)", tuple(lines)))
    return made


def drawn(found: Sequence[Setup], path: Path, across: int = 3) -> None:
    """One SVG, which says in its description which numbers it shows."""
    from adafed.report.figures import differences, style

    figures = panels(found)
    with style.publication():
        figure = differences.draw(figures, [label(key) for key in SHOWN], BASE, across)
        style.save_described(figure, path, fingerprint(figures))


def fingerprint(figures: Sequence[Differences]) -> str:
    """Of the numbers of a figure, to a thousandth."""
    told = [
        [panel.title, [[one.method, [dot and (f"{dot.mean:.3f}", dot.half and f"{dot.half:.3f}") for dot in one.dots]]
         for one in panel.lines]] for panel in figures
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _dot(setup: Setup, method: str, key: str) -> Dot | None:
    found = setup.difference(method, BASE, key)
    return None if found is None else Dot(found.mean, found.half)
