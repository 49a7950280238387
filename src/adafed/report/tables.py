"""Tables of results: on the terminal, in Markdown, in LaTeX, as CSV, in HTML; a column's best and second best marked.

A cell is a mean over seeds with its standard deviation. Personalised methods serve every client its own model, so they
carry a mark and do not compete for the best.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from adafed.metrics import Metric, metric

STD = "std over seeds"
HALF = "half of the 95 % interval"
LEAST_LABEL = 12  # of a method's name on one line


@dataclass(frozen=True)
class Column:
    """`better` is 1 where larger is better, -1 where smaller is, 0 where neither is.

    `spread` says what follows a number's ±, `missed` what its seeds did that are not counted, where that can be: the
    heads of columns that CSV has for them.
    """

    label: str
    better: int = 0
    latex: str | None = None
    digits: int = 2
    spread: str = STD
    missed: str | None = None

    @classmethod
    def of(cls, chosen: Metric) -> Column:
        return cls(chosen.label, chosen.direction, chosen.latex, chosen.digits)


def column(key: str, where: str = "columns") -> Column:
    """The column of the measure that `key` names."""
    return Column.of(metric(key, where))


@dataclass(frozen=True)
class Cell:
    """The mean of some values, and their standard deviation (n - 1) where there are several. None: not known.

    `mark` follows the number, for a note; `digits` takes the place of the column's. One that is of some seeds only, and
    not because they were not run, does not compete.

    Where the one value comes of several seeds, `seeds` says of how many and `half` is half its interval, which `mark`
    shows; `missed` seeds are not among the values.
    """

    values: tuple[float, ...]
    mark: str = ""
    digits: int | None = None
    competes: bool = True
    half: float | None = None
    seeds: int | None = None
    missed: int = 0

    @property
    def mean(self) -> float | None:
        return sum(self.values) / len(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        if len(self.values) < 2 or self.mean is None:
            return None
        return math.sqrt(sum((value - self.mean) ** 2 for value in self.values) / (len(self.values) - 1))


@dataclass(frozen=True)
class Row:
    """A `reference` (a printed number, say) is shown and does not compete."""

    label: str
    cells: tuple[Cell, ...]
    personalised: bool = False
    reference: bool = False


@dataclass(frozen=True)
class Fitted:
    """A table for a terminal, cut into several, one below the other, where it is too wide for that."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.table.pieces(options.max_width)


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())
    head: str = "method"

    def ranks(self, column: int) -> dict[int, int]:
        """Row -> 1 or 2 for the best and second best mean among the methods that share one model."""
        better = self.columns[column].better
        means = [
            (better * cell.mean, i)
            for i, row in enumerate(self.rows)
            if (cell := row.cells[column]).mean is not None
            and cell.competes
            and not row.personalised
            and not row.reference
        ]
        if not better or len(means) < 2:
            return {}
        values = sorted({round(value, 9) for value, _ in means}, reverse=True)[:2]
        return {i: values.index(round(value, 9)) + 1 for value, i in means if round(value, 9) in values}

    def _texts(self, plus_minus: str, dash: str = "–", fewer: int = 0) -> list[list[str]]:
        texts = []
        for row in self.rows:
            line = []
            for column, cell in zip(self.columns, row.cells, strict=True):
                if cell.mean is None:
                    line.append(dash)
                    continue
                digits = max(column.digits - fewer, 0) if cell.digits is None else cell.digits
                text = f"{cell.mean:.{digits}f}"
                text = text if cell.spread is None else f"{text}{plus_minus}{cell.spread:.{digits}f}"
                line.append(text + cell.mark)
            texts.append(line)
        return texts

    def _label(self, row: Row) -> str:
        return f"{row.label} *" if row.personalised else row.label

    def remarks(self) -> list[str]:
        notes = list(self.notes)
        if any(row.personalised for row in self.rows):
            notes.append("* personalised: every client is measured with its own model")
        return notes

    def rich(self) -> Fitted:
        """For the terminal: the best bold, the second best underlined, as many tables as its width takes."""
        return Fitted(self)

    def pieces(self, width: int) -> list[RichTable]:
        """Each with the methods and so many columns as fit: a number is never cut, a method's name is folded."""
        texts = self._texts("±", fewer=1)
        labels = max(map(cell_len, [self.head, *(self._label(row) for row in self.rows)]))
        widths = [
            max(cell_len(column.label), *(cell_len(line[c]) for line in texts), 1)
            for c, column in enumerate(self.columns)
        ]
        gap = 2 if labels + 2 + sum(widths) + 2 * len(widths) <= width else 1  # first the columns close up
        labels = min(labels, max(LEAST_LABEL, width - 2 - gap - max(widths, default=0)))
        groups: list[list[int]] = [[]]
        for c, needed in enumerate(widths):
            if groups[-1] and labels + 2 + sum(widths[i] + gap for i in groups[-1]) + needed + gap > width:
                groups.append([])
            groups[-1].append(c)
        ends = [(n == 0, n == len(groups) - 1) for n in range(len(groups))]
        return [self._piece(one, texts, labels, gap, *end) for one, end in zip(groups, ends, strict=True)]

    def _piece(
        self, group: list[int], texts: list[list[str]], labels: int, gap: int, first: bool, last: bool
    ) -> RichTable:
        table = RichTable(
            title=(self.title or None) if first else None,
            title_justify="left",
            title_style="bold",
            caption=("\n".join(self.remarks()) or None) if last else None,
            caption_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, gap - 1, 0, 0),
        )
        table.add_column(self.head, overflow="fold", max_width=labels)
        for c in group:
            table.add_column(self.columns[c].label, justify="right", no_wrap=True)
        ranks = {c: self.ranks(c) for c in group}
        styles = {1: "bold", 2: "underline"}
        for i, (row, line) in enumerate(zip(self.rows, texts, strict=True)):
            cells = [Text(line[c], style=styles.get(ranks[c].get(i, 0), "")) for c in group]
            table.add_row(self._label(row), *cells, style="dim" if row.reference else None)
        return table

    def markdown(self) -> str:
        ranks = [self.ranks(i) for i in range(len(self.columns))]
        marks = {1: "**{}**", 2: "<u>{}</u>"}
        lines = [
            "| " + " | ".join(map(_marked_down, [self.head, *(column.label for column in self.columns)])) + " |",
            "|" + "|".join(["---", *("---:" for _ in self.columns)]) + "|",
        ]
        for i, (row, texts) in enumerate(zip(self.rows, self._texts(" ± "), strict=True)):
            cells = [marks.get(ranks[c].get(i, 0), "{}").format(text) for c, text in enumerate(texts)]
            lines.append("| " + " | ".join([_marked_down(self._label(row)), *cells]) + " |")
        notes = [f"\n{note}" for note in self.remarks()]
        title = [f"**{self.title}**\n"] if self.title else []
        return "\n".join([*title, *lines, *notes]) + "\n"

    def latex(self) -> str:
        """A booktabs tabular; bold and underline as the paper has them."""
        ranks = [self.ranks(i) for i in range(len(self.columns))]
        marks = {1: "\\textbf{%s}", 2: "\\underline{%s}"}
        head = [_escaped(self.head), *(column.latex or _escaped(column.label) for column in self.columns)]
        lines = [
            f"\\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
            "\\toprule",
            " & ".join(head) + " \\\\",
            "\\midrule",
        ]
        for i, (row, texts) in enumerate(zip(self.rows, self._texts(" $\\pm$ ", "--"), strict=True)):
            cells = [marks.get(ranks[c].get(i, 0), "%s") % text for c, text in enumerate(texts)]
            lines.append(" & ".join([_escaped(self._label(row)), *cells]) + " \\\\")
        lines += ["\\bottomrule", "\\end{tabular}"]
        return "\n".join([*(f"% {note}" for note in [self.title, *self.remarks()] if note), *lines]) + "\n"

    def csv(self) -> str:
        """All digits, with the spread or half the interval and the number of seeds in columns of their own."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        labels = []
        for column in self.columns:
            labels += [column.label, f"{column.label} {column.spread}"]
            labels += [] if column.missed is None else [f"{column.label} {column.missed}"]
        writer.writerow([self.head, "personalised", "seeds", *labels])
        for row in self.rows:
            numbers: list[object] = []
            for column, cell in zip(self.columns, row.cells, strict=True):
                apart = cell.spread if column.spread == STD else cell.half
                numbers += ["" if number is None else repr(number) for number in (cell.mean, apart)]
                numbers += [] if column.missed is None else [cell.missed]
            seeds = max((cell.seeds or len(cell.values) + cell.missed for cell in row.cells), default=0)
            writer.writerow([row.label, "yes" if row.personalised else "no", seeds, *numbers])
        return out.getvalue()

    def html(self, name: str = "") -> str:
        """Rows can be sorted by `data-value`; `name` is the class. Title and notes are left to the page."""
        ranks = [self.ranks(i) for i in range(len(self.columns))]
        words = {1: "best", 2: "second"}
        heads = "".join(f'<th scope="col">{_lowered(column.label)}</th>' for column in self.columns)
        lines = []
        for i, (row, texts) in enumerate(zip(self.rows, self._texts(" ± "), strict=True)):
            cells = []
            for c, (text, cell) in enumerate(zip(texts, row.cells, strict=True)):
                mean, rank = "" if cell.mean is None else f' data-value="{cell.mean!r}"', words.get(ranks[c].get(i, 0))
                marked = f'<td{mean} class="{rank}">' if rank else f"<td{mean}>"
                cells.append(f"{marked}{escape(text)}</td>")
            label = escape(self._label(row))
            lines.append(f'<tr><th scope="row" data-method="{escape(row.label)}">{label}</th>{"".join(cells)}</tr>')
        return (
            f'<table class="{escape(name)}"><thead><tr><th scope="col">{escape(self.head)}</th>{heads}</tr></thead>'
            f"<tbody>{''.join(lines)}</tbody></table>"
        )

    def rendered(self, form: str) -> str:
        """`form` is markdown, latex or csv."""
        return {"markdown": self.markdown, "latex": self.latex, "csv": self.csv}[form]()


def _lowered(label: str) -> str:
    """A label in HTML, its index below the line."""
    return escape(label).replace("σ_a", "σ<sub>a</sub>")


def _marked_down(text: str) -> str:
    """A name as text in Markdown, which takes angle brackets for HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _escaped(text: str) -> str:
    special = {
        "&": "\\&",
        "%": "\\%",
        "_": "\\_",
        "#": "\\#",
        "$": "\\$",
        "{": "\\{",
        "}": "\\}",
        "\\": "\\textbackslash{}",
        "^": "\\textasciicircum{}",
        "~": "\\textasciitilde{}",
        "±": "$\\pm$",
        "≥": "$\\geq$",
        "σ": "$\\sigma$",
        "ρ": "$\\rho$",
        "°": "$^\\circ$",
    }
    return "".join(special.get(letter, letter) for letter in text)


def cells(rows: Sequence[Sequence[float | None]]) -> tuple[Cell, ...]:
    """One cell a column from one sequence of values a seed."""
    return tuple(Cell(tuple(v for v in column if v is not None)) for column in zip(*rows, strict=True))
