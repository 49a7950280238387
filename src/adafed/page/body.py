"""The page's words and tables as HTML, section by section. It is whole without its pictures, and without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from adafed.page.doubts import Doubt, doubts
from adafed.page.model import Event, Report, Run, federations, flat
from adafed.page.sentences import called, improved_share, sentences
from adafed.page.tables import differences, summary
from adafed.report.tables import Table

STATIC_ROWS = 500  # clients in the table that is there without scripts
MANY = 12  # runs whose table is folded


SECTIONS = {
    "overview": "Who is treated worst, and what fairness cost",
    "curves": "Did the rule do what it promises?",
    "clients": "Clients",
    "trust": "Can I trust it?",
}
SHORT = {"overview": "Who", "curves": "How", "clients": "Clients", "trust": "Trust"}


def links(sections: Iterable[str]) -> str:
    return " ".join(f'<a href="#{name}">{SHORT[name]}</a>' for name in sections)


def sections(report: Report) -> dict[str, str]:
    """Those that have something to show, by name."""
    made = {
        "overview": _overview(report),
        "curves": _curves(report),
        "clients": _clients(report),
        "trust": _trust(report),
    }
    return {
        name: f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{SECTIONS[name]}</h2>'
        f"{content}</section>"
        for name, content in made.items()
        if content
    }


def facts_line(report: Report) -> str:
    """What there is, in a line."""
    methods, clients = (
        len({run.method for run in report.runs}),
        {len(run.clients.ids) for run in report.runs if run.clients is not None},
    )
    rounds = {run.asked for run in report.runs if run.asked}
    words = [
        _count(methods, "method"),
        _count(len(report.seeds), "seed"),
        *([f"{_range(clients)} clients"] if clients else []),
        *([f"{_range(rounds)} rounds"] if rounds else []),
        *report.data,
    ]
    return " · ".join(words)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _range(numbers: Iterable[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


# Who is treated worst, and did fairness cost accuracy


def _overview(report: Report) -> str:
    lead, *rest = sentences(report)
    said = f'<p class="lead">{_words(lead)}</p>' + "".join(f"<p>{_words(one)}</p>" for one in rest)
    parts = [f'<div class="words">{said}{_pointer(doubts(report))}</div>']
    if report.methods:
        saving = '<p class="tools" data-tables hidden></p>'
        parts.append(
            f'<div class="numbers">{_shown(summary(report), "summary", "The methods in numbers")}{saving}</div>'
        )
    if any(run.clients is not None for run in report.runs):
        parts.append(_figure(
            "sorted", "Every client, from the worst served to the best",
            "Each line is one method’s clients in the order of their accuracy. Fair is flat and high. The worst tenth "
            "is shaded; the band spans the seeds.",
        ))  # fmt: skip
    first = f'<div class="first">{"".join(parts)}</div>'
    return first + _below(report)


def _below(report: Report) -> str:
    """What the first screen has no room for."""
    parts = []
    if report.methods and all(run.clients is None for run in report.runs):
        parts.append("<p>Single clients are not in kept results, so the picture of their accuracies is missing.</p>")
    if (table := differences(report)) is not None:
        parts.append(_shown(table, "differences", f"Differences to {report.reference}"))
    going = [run for run in report.runs if run.done < run.asked]
    if going:
        rows = [(run.method, str(run.seed), f"{run.done} of {run.asked}") for run in going]
        parts.append(f"<h3>Not finished</h3>{_plain(('method', 'seed', 'rounds done'), rows, 'unfinished')}")
    return "".join(parts)


def _pointer(found: Sequence[Doubt]) -> str:
    if not found:
        return ""
    return f'<p class="pointer"><a href="#trust">{_count(len(found), "thing")} to know before trusting this</a></p>'


# Did the rule do what it promises


def _curves(report: Report) -> str:
    if not report.methods:
        return ""
    whole = [run for run in report.runs if run.rounds is not None and run.at]
    figures = [
        ("mean", "Mean accuracy", "Over all clients, on their test samples."),
        ("worst", "Worst tenth", "Mean accuracy of the tenth of clients that are served worst in that evaluation."),
    ]
    if whole:
        figures.append(
            ("spread", "Spread of the losses", "Standard deviation of the clients’ test losses: low is even.")
        )
    if any(improved_share(runs) is not None for runs in report.methods.values()):
        figures.append(("rho", "Clients whose loss did not rise, ρ", "Share of the round’s clients, as a moving mean."))
    if whole:
        figures += [
            (
                "decrease",
                "Mean decrease of the loss",
                "Over the clients of the round, as a moving mean; below zero it rose.",
            ),
            (
                "norm",
                "Length of the step, ‖d‖",
                "With marks: the direction taken. Thin dots: the mean update.",
            ),
        ]
    drawn = "".join(_figure(*one) for one in figures)
    more = ""
    if whole:
        more += _figure(
            "coefficients", "Coefficients of the clients’ updates",
            "From the lowest to the highest in each round, with the middle half and the median. Below the line a "
            "client’s update is subtracted.", chooser="method",
        )  # fmt: skip
        more += _figure(
            "histogram", "How many clients have which accuracy", "Share of the clients in steps of five points."
        )
        more += _figure("cumulative", "Clients with at most this accuracy", "The further right a line, the better.")
    if len(report.methods) > 1:
        more += _figure(
            "pareto", "Accuracy against fairness",
            "Up and to the right is better. The line joins the methods that no other beats in both.",
        )  # fmt: skip
    missing = "" if whole else "<p>Kept results hold no lengths of updates, coefficients or single clients.</p>"
    return f'<div class="grid">{drawn}{more}</div>{missing}'


# Clients


def _clients(report: Report) -> str:
    groups = federations([run for run in report.runs if run.method in report.methods])
    if not groups:
        return ""
    runs = next(iter(groups.values()))
    table, shown, total = _client_table(report, runs)
    note = "" if shown == total else f"<p data-static>The {shown} worst served of {total:,} clients.</p>"
    seeds = "" if len(groups) == 1 else (
        "<p>Seeds deal the samples anew, so client 3 of one seed is not client 3 of another: choose one.</p>"
    )  # fmt: skip
    gained = ""
    if len({run.method for run in runs}) > 1:
        gained = _figure(
            "gained", "Who gained and who paid",
            "Each mark is a client. Above the line it is better off with the second method, below it paid.",
            chooser="pair",
        )  # fmt: skip
    return (
        f'{seeds}<div class="tools" data-clients hidden></div>{note}'
        f'<div class="scroll" role="region" aria-label="Table of clients" tabindex="0" id="client-table">{table}</div>'
        f'<div class="tools pages" data-pages hidden></div>{gained}'
    )


def _client_table(report: Report, runs: Sequence[Run]) -> tuple[str, int, int]:
    """For reading without scripts: the worst served under the reference first."""
    methods = list(dict.fromkeys(run.method for run in runs))
    told = {method: np.mean([run.client_accuracies(report.tail) for run in runs if run.method == method], axis=0)
            for method in methods}  # fmt: skip
    first = runs[0].clients
    assert first is not None
    by = report.reference if report.reference in told else methods[0]
    counted = [run.clients for run in runs if run.method == by and run.clients is not None]
    drawn, dropped = (np.sum([getattr(one, what) for one in counted], axis=0) for what in ("drawn", "dropped"))
    order = np.argsort(np.nan_to_num(told[by], nan=np.inf), kind="stable")[:STATIC_ROWS]
    rows = [
        (first.ids[k], *(_known(told[method][k], 1) for method in methods), str(first.test_samples[k]),
         _known(first.train_samples[k], 0), str(drawn[k]), str(dropped[k]))
        for k in order.tolist()
    ]  # fmt: skip
    heads = ("client", *(f"{method} %" for method in methods), "test samples", "train samples", "drawn", "dropped")
    return _plain(heads, rows, "clients"), len(order), len(first.ids)


def _known(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


# Can I trust the run


def _trust(report: Report) -> str:
    found = doubts(report)
    lines = "".join(f'<li class="{"grave" if one.grave else "weak"}">{escape(one.text)}</li>' for one in found)
    parts = [f'<ul class="doubts">{lines}</ul>' if lines else "<p>Nothing speaks against these runs.</p>"]
    heads = ("method", "seed", "rounds", "data", "checksum", "resumed", "engine", "read from")
    runs = _plain(heads, [_described(run) for run in report.runs], "runs")
    many = f"<details><summary>All {len(report.runs)} runs</summary>{runs}</details>"
    parts.append(f"<h3>The runs</h3>{many if len(report.runs) > MANY else runs}")
    events = [(run, event) for run in report.runs for event in run.events]
    if events:
        columns = ("method", "seed", "what", "why", "times", "clients", "rounds")
        parts.append(
            "<h3>Clients dropped, bounded or warned of, and rounds that were not as usual</h3>"
            + _plain(columns, [_told(*one) for one in events], "events")
        )
    elif any(run.rounds is not None for run in report.runs):
        parts.append("<p>No client was dropped or bounded, and no round was skipped.</p>")
    differing = _differing(report)
    if differing:
        names = dict.fromkeys(run.method for run in report.runs if run.config)
        parts.append("<h3>Where the methods differ</h3>" + _plain(("key", *names), differing, "settings"))
    versions = {key: value for run in report.runs for key, value in _versions(run).items()}
    if versions:
        several = [
            key for key in versions if len({_versions(run).get(key) for run in report.runs if _versions(run)}) > 1
        ]
        rows = [(key, "different from run to run" if key in several else str(value)) for key, value in versions.items()]
        parts.append("<h3>Made with</h3>" + _plain(("what", "version"), rows, "versions"))
    parts += _configurations(report)
    return "".join(parts)


def _described(run: Run) -> tuple[str, ...]:
    data = run.facts.get("data")
    data = data if isinstance(data, dict) else {}
    resumed = run.facts.get("resumed")
    after = ", ".join(map(str, resumed)) if isinstance(resumed, list) and resumed else ""
    asked = str(run.done) if run.done >= run.asked else f"{run.done} of {run.asked}"
    unknown = "–" if run.rounds is None else "no"
    return (
        run.method, str(run.seed), asked, str(data.get("name", "–")), (run.checksum or "–")[:12],
        f"after round {after}" if after else unknown, str(run.facts.get("engine", "–")), run.source,
    )  # fmt: skip


def _told(run: Run, event: Event) -> tuple[str, ...]:
    shown = ", ".join(map(str, event.rounds[:8])) + (", …" if len(event.rounds) > 8 else "")
    clients = str(event.clients) if event.clients else "–"
    return run.method, str(run.seed), event.what, event.why, str(event.times), clients, shown


def _versions(run: Run) -> dict[str, Any]:
    found = run.facts.get("versions")
    return found if isinstance(found, dict) else {}


def _differing(report: Report) -> list[tuple[str, ...]]:
    """Keys of the configuration that are not the same under all methods, and what they are."""
    firsts: dict[str, dict[str, Any]] = {}
    for run in report.runs:
        if run.config:
            firsts.setdefault(run.method, flat(run.config))
    keys = sorted({key for one in firsts.values() for key in one})
    missing = object()
    apart = [key for key in keys if len({repr(one.get(key, missing)) for one in firsts.values()}) > 1]
    return [(key, *(str(one.get(key, "–")) for one in firsts.values())) for key in apart]


def _configurations(report: Report) -> list[str]:
    """The first run of each method, whole."""
    firsts = {run.method: run for run in reversed(report.runs) if run.toml}
    return [
        f"<details><summary>Configuration of {escape(called(method))}, seed {run.seed}</summary>"
        f'<pre tabindex="0">{escape(run.toml or "")}</pre></details>'
        for method, run in reversed(firsts.items())
    ]


# Pieces


def _words(text: str) -> str:
    return escape(text).replace("σ_a", "σ<sub>a</sub>")


def _figure(name: str, title: str, what: str, chooser: str = "") -> str:
    tools = f'<div class="tools" data-chooser="{chooser}"></div>' if chooser else ""
    return (
        f'<figure id="figure-{name}"><figcaption><h3>{escape(title)}</h3><p>{escape(what)}</p></figcaption>{tools}'
        f'<div class="picture" data-picture="{name}" role="group" aria-label="{escape(title)}"></div></figure>'
    )


def _shown(table: Table, name: str, title: str) -> str:
    notes = "".join(f"<li>{_words(note)}</li>" for note in table.remarks())
    ranked = any(column.better for column in table.columns) and len(table.rows) > 1
    legend = "<li><b>bold</b>: best, <u>underlined</u>: second best</li>" if ranked else ""
    return (
        f'<h3>{escape(title)}</h3><div class="scroll" role="region" aria-label="{escape(title)}" tabindex="0">'
        f'{table.html(name)}</div><ul class="notes">{legend}{notes}</ul>'
    )


def _plain(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> str:
    """A table of texts; a `clients` table has a scrolling region of its own."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    lines = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(one)}</td>" for one in rest)}</tr>'
        for first, *rest in rows
    )
    table = f'<table class="{name}"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
    if name == "clients":
        return table
    return f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0">{table}</div>'
