"""Figures are drawn from run directories, in three formats, the same bytes for the same numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from adafed.config.studies import study_from
from adafed.errors import AdafedError
from adafed.paper.reproduce import Request, planned_for
from adafed.report.figures import FIGURES, Curves, Differences, Dot, Line, Panel, figure, save_curves
from adafed.studies.compare import run_all

pytest.importorskip("matplotlib")
from adafed.report.figures import curves, differences, pareto, style

EXPERIMENT = {
    "rounds": 12,
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 6, "beta": 0.5},
    "split": {"validation": 0.0, "test": 0.3},
    "model": {"name": "logistic"},
    "run": {"workers": 0},
    "methods": {"FedAvg": {"rule": "fedavg"}, "AdaFed": {"rule": "adafed"}},
}


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Panel:
    from adafed.studies.compare import planned

    runs = planned(study_from(EXPERIMENT, "small"), [0, 1], [], tmp_path_factory.mktemp("runs"))
    run_all(runs, lambda run, round, record: None)
    found: dict[str, list[Path]] = {}
    for run in runs:
        found.setdefault(run.method, []).append(run.directory)
    return Panel("Digits", found)


def only(panel: Panel, method: str) -> Panel:
    return Panel(panel.title, {method: panel.runs[method]})


def is_image(path: Path) -> bool:
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[path.suffix[1:]]
    return path.read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["figure-rho", "figure-accuracy", "figure-norm", "figure-histogram", "figure-memory"])
def test_figures_of_all_methods(name: str, panel: Panel, tmp_path: Path) -> None:
    panels = [panel] if name == "figure-histogram" else [panel, panel]
    paths = figure(name).save(panels, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".svg", ".pdf"]
    assert all(is_image(path) for path in paths)


def test_the_losses_of_two_clients(panel: Panel, tmp_path: Path) -> None:
    both = figure("figure-loss").draw([panel, panel])
    assert [axes.get_title() for axes in both.axes] == 2 * ["Digits: FedAvg"] + 2 * ["Digits: AdaFed"]
    drawn = figure("figure-loss").draw([only(panel, "AdaFed")])
    labels = [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
    assert [label.split()[0] for label in labels] == ["highest", "lowest"]
    high, low = (line.get_ydata()[0] for line in drawn.axes[0].get_lines()[1::2])
    assert high >= low


def test_the_printed_algorithms_norms_are_drawn_beside_ours(panel: Panel) -> None:
    cases = Panel("Digits", {"e = 1": panel.runs["AdaFed"], "e = 1, as printed": panel.runs["FedAvg"]})
    drawn = figure("figure-norm").draw([cases])
    (axes,) = drawn.axes
    assert axes.get_title() == "Digits: e = 1"
    ours, printed = axes.get_lines()[1::2]
    assert (ours.get_linestyle(), printed.get_linestyle()) == ("-", "--")
    assert not np.array_equal(ours.get_ydata(), printed.get_ydata())
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["|f|^gamma over its mean", "as printed"]


def test_the_second_hull_has_gradients_of_length_1() -> None:
    """As its caption says, and d bisects them."""
    axes = figure("figure-hull").draw([]).axes[1]
    ends, d = np.array(axes.get_lines()[0].get_data()).T, np.array(axes.get_lines()[1].get_data())[:, 0]
    np.testing.assert_allclose(np.linalg.norm(ends, axis=1), 1.0)
    np.testing.assert_allclose(ends @ d, [d @ d, d @ d])


@pytest.mark.parametrize("name", FIGURES)
def test_a_missing_matplotlib_is_told_before_anything_is_trained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.startswith("adafed.report.figures.")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [module for module in sys.modules if module.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(AdafedError, match=r"^figures need matplotlib: pip install 'adafed\[figures\]'$"):
        planned_for(Request(name, "smoke"))


def test_some_panels_of_a_figure(tmp_path: Path) -> None:
    plan = planned_for(Request("figure-late", "smoke", out=tmp_path, panels=["figure-late"]))
    assert len(plan.parts) == 1
    with pytest.raises(AdafedError, match=r"^--panel is 'cifar'; figure-rho has cifar10-1, cifar100-1$"):
        planned_for(Request("figure-rho", "smoke", panels=["cifar"]))


def test_the_hull_needs_no_data(tmp_path: Path) -> None:
    plan = planned_for(Request("figure-hull", out=tmp_path))
    assert plan.runs == []
    assert all(is_image(path) for path in plan.drawn())


def test_a_newcomer(tmp_path: Path) -> None:
    plan = planned_for(Request("figure-late", "smoke", out=tmp_path, settings=["run.workers=0"]))
    run_all(plan.runs, lambda run, round, record: None)
    assert all(is_image(path) for path in plan.drawn())


def test_the_front_is_a_front_and_methods_end_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pareto, "ROUNDS", 150)
    losses = pareto.two_clients()
    front = pareto.pareto_front(losses, points=9)
    assert (np.diff(front[:, 0]) > 0).all()
    assert (np.diff(front[:, 1]) < 0).all()
    way = pareto.descend(losses, "adafed", {"gamma": 1.0})
    assert (np.diff(way, axis=0) <= 0).all(), "every round is descent for both clients"
    below = np.interp(way[:, 0], front[:, 0], front[:, 1])
    assert (way[:, 1] >= below - 0.02).all(), "nobody gets below the front"


def test_the_same_numbers_give_the_same_files(panel: Panel, tmp_path: Path) -> None:
    first = figure("figure-accuracy").save([panel], tmp_path / "a")
    second = figure("figure-accuracy").save([panel], tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_lines_differ_without_colour() -> None:
    methods = ["FedAvg", "q-FFL", "FedMGDA+", "FedFA", "AFL", "TERM", "Ditto", "AdaFed as printed", "AdaFed"]
    looks = style.look(methods)
    assert len({look["marker"] for look in looks.values()}) == len(methods)
    assert len({str(look["linestyle"]) for look in looks.values()}) == len(methods)
    assert looks["AdaFed"]["linestyle"] == "-"


def test_smoothing_keeps_constants_and_length() -> None:
    values = np.full(100, 3.0)
    np.testing.assert_allclose(style.smooth(values), values)
    assert len(style.smooth(np.arange(7.0))) == 7


def test_an_unknown_figure_is_told() -> None:
    with pytest.raises(AdafedError, match=r"^figure = 'figure-9' is unknown; there are figure-hull, "):
        figure("figure-9")
    assert all(name.startswith("figure-") for name in FIGURES)


def test_kept_curves_are_means_over_the_rounds_all_seeds_have_shaded_between_the_seeds(tmp_path: Path) -> None:
    two = [([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]), ([2.0, 3.0, 4.0], [40.0, 50.0, 60.0])]
    panel = Curves(
        "A study", "mean %", {"AdaFed": two, "FedAvg": [([1.0, 2.0], [5.0, 6.0])], "Nothing yet": [([], [])]}
    )
    drawn = curves.by_round([panel])
    (axes,) = drawn.axes
    lines = {tuple(line.get_xdata()): tuple(line.get_ydata()) for line in axes.get_lines()}
    assert lines == {(2.0, 3.0): (30.0, 40.0), (1.0, 2.0): (5.0, 6.0)}
    (shade,) = axes.collections  # one seed has no spread
    corners = {tuple(corner) for corner in shade.get_paths()[0].vertices.tolist()}
    assert {(2.0, 20.0), (3.0, 30.0), (2.0, 40.0), (3.0, 50.0)} <= corners
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["AdaFed", "FedAvg"]
    written = save_curves([panel], tmp_path / "deep" / "curves")
    assert [path.suffix for path in written] == [".png", ".svg", ".pdf"]
    with pytest.raises(AdafedError, match="nothing to draw"):
        curves.by_round([Curves("A study", "mean %", {"Nothing yet": []})])


def test_a_difference_far_off_is_told_and_does_not_press_the_others() -> None:
    near = [Line(f"near {k}", (Dot(0.5 + k, 0.2), Dot(0.5, 0.1))) for k in range(3)]
    drawn = differences.draw([Differences("a", (*near, Line("far", (Dot(-40.0, 2.0), None))))], ["x", "y"], "FedAvg")
    axes = drawn.axes[0]
    assert axes.get_xlim() == pytest.approx((-3.125, 3.125))
    assert [text.get_text() for text in axes.texts] == ["-40"]
