"""What speaks against trusting the runs, each in a sentence: what went wrong in them, and what they cannot tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.page.model import Report, Run, federations
from adafed.page.sentences import called
from adafed.rounds.cohort import BY_LOSS, OTHER_COHORTS
from adafed.runs.summary import LATE

ILL = 1e12  # the Gram matrix's condition beyond which a double's digits are used up by the solution's errors
OFTEN = 0.1  # of the rounds
SWING = 2.0  # points of standard deviation between late evaluations, over what a trend explains
FEW_SEEDS = 3
FEW_SAMPLES = 20
IN_SOME_ROUNDS = {"fallback": "the rule fell back", "hidden": "the rule saw the cohort alone"}
NAMED = 3  # runs, where more have the same to tell


@dataclass(frozen=True)
class Doubt:
    """`grave` is what makes numbers wrong; the rest makes them weak."""

    text: str
    grave: bool = False


def doubts(report: Report) -> list[Doubt]:
    found = [Doubt(f"left out: {why}", True) for why in report.left_out]
    found += [*_of_the_whole(report), *_swinging(report)]
    told: dict[tuple[str, bool], list[Run]] = {}
    for run in report.runs:
        for one in _of(run):
            told.setdefault(one, []).append(run)
    return found + [Doubt(f"{_which(report, runs)}: {text}", grave) for (text, grave), runs in told.items()]


def _which(report: Report, runs: list[Run]) -> str:
    if len(runs) == len(report.runs) > 1:
        return "all runs"
    names = [f"{called(run.method)}, seed {run.seed}" for run in runs]
    return "; ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _of_the_whole(report: Report) -> list[Doubt]:
    found = []
    names = report.data
    if len(names) > 1:
        found.append(Doubt(f"the runs are on different data ({', '.join(names)}): their numbers do not compare", True))
    by_seed: dict[int, set[str]] = {}
    for run in report.runs:
        if run.checksum is not None:
            by_seed.setdefault(run.seed, set()).add(run.checksum)
    apart = [str(seed) for seed, sums in sorted(by_seed.items()) if len(sums) > 1]
    if apart and len(names) <= 1:
        seeds = f"seed {apart[0]}" if len(apart) == 1 else f"seeds {', '.join(apart)}"
        found.append(Doubt(f"at {seeds} the clients do not hold the same samples in all runs, so they are not paired"))
    seeds_of = {method: len({run.seed for run in runs}) for method, runs in report.methods.items()}
    few = min(seeds_of.values(), default=0)
    if len(seeds_of) > 1 and few < FEW_SEEDS:
        many = "one seed of a method is" if few == 1 else f"{few} seeds of a method are"
        found.append(Doubt(f"{many} too few to tell a difference from luck; five or more can"))
    if len(report.methods) > 1 and any(_sampling(run) in BY_LOSS for run in report.runs):
        found.append(Doubt(OTHER_COHORTS))
    for runs in federations(report.runs).values():
        clients = runs[0].clients
        assert clients is not None
        known = clients.test_samples[clients.test_samples > 0]
        if len(known) and (small := int((known < FEW_SAMPLES).sum())) > len(known) / 4:
            found.append(Doubt(
                f"{small} of {len(known)} clients have fewer than {FEW_SAMPLES} test samples: their accuracies are "
                "coarse, and the worst tenth is partly bad luck"
            ))  # fmt: skip
            break
    if any(run.clients is None and run.at for run in report.runs):
        found.append(Doubt(
            "kept results hold summaries only: single clients, lengths of updates, coefficients, configurations and "
            "data checksums are not in them"
        ))  # fmt: skip
    return found


def _sampling(run: Run) -> object:
    cohort = (run.config or {}).get("cohort")
    return cohort.get("sampling") if isinstance(cohort, dict) else None


def _of(run: Run) -> list[tuple[str, bool]]:
    found = [(text, False) for text in run.warnings]
    if not run.at:
        found.append((f"no evaluation yet, {run.done} of {run.asked} rounds done", False))
    elif run.done < run.asked:
        found.append((f"only {run.done} of {run.asked} rounds done", False))
    if run.rounds is not None:
        condition = run.rounds.series["condition"]
        ill = int((condition > ILL).sum())
        if ill > OFTEN * len(condition):
            found.append((
                f"the Gram matrix was ill-conditioned (above {ILL:.0e}) in {ill} of {len(condition)} rounds: updates "
                "were nearly dependent, and single coefficients mean little", False,
            ))  # fmt: skip
    warned = [event for event in run.events if event.what == "warned"]
    if warned:
        times, rounds = (
            sum(event.times for event in warned),
            len({number for event in warned for number in event.rounds}),
        )
        found.append((f"guards warned {times} times, in {rounds} of {run.done} rounds: {warned[0].why}", False))
    for what, said in IN_SOME_ROUNDS.items():
        times = sum(event.times for event in run.events if event.what == what)
        if times:
            why = next(event.why for event in run.events if event.what == what)
            found.append((f"in {times} of {run.done} rounds {said}: {why}", False))
    absent = [event for event in run.events if event.what == "not_evaluated"]
    if absent:
        rounds = len({number for event in absent for number in event.rounds})
        clients = max(event.clients for event in absent)
        found.append((
            f"in {rounds} of {len(run.at)} evaluations up to {clients} clients did not answer: the numbers are of the "
            "others alone", True,
        ))  # fmt: skip
    skipped = sum(event.times for event in run.events if event.what == "skipped")
    if skipped:
        found.append((f"{skipped} of {run.done} rounds changed nothing", skipped > OFTEN * run.done))
    losses = run.evaluations.get("loss_std", ())
    if run.clients is not None and losses and losses[-1] is None:
        found.append(("some clients' losses are not finite numbers in the last evaluation", True))
    return found


def _swinging(report: Report) -> list[Doubt]:
    found = [(run, size) for run in report.runs if (size := swings(run)) is not None]
    if not found:
        return []
    sizes = [size for _, size in found]
    by = f"{min(sizes):.1f}" if len(sizes) == 1 else f"{min(sizes):.1f} to {max(sizes):.1f}"
    one = "" if report.tail else ", so the last one alone says little: --tail averages the last tenth of the rounds"
    return [Doubt(
        f"the model still swings in {_which(report, [run for run, _ in found])}: from one late evaluation to the "
        f"next the worst tenth moves by {by} points on average{one}"
    )]  # fmt: skip


def swings(run: Run) -> float | None:
    """The usual step of worst 10 % between late evaluations where it is large, and no steady rise or fall."""
    values = [one for one in run.evaluations.get("worst_10", ()) if one is not None]
    late = np.array(values[-max(4, int(LATE * len(values))) :], dtype=np.float64)
    if len(late) < 4:
        return None
    steps = np.diff(late)
    size = float(np.sqrt(np.mean(np.square(steps - steps.mean()))))
    return float(np.mean(np.abs(steps))) if size > SWING else None
