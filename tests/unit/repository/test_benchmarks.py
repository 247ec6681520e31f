"""The parts of the benchmark that need no masters: numbers, verdicts, tables, plots, pasting."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.cases import cases
from support.thorough import MORE

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))  # scripts, no package

import document
import plot
import report
import scenarios
import stats
import tables
import thresholds
from progress import Progress


def turn(**numbers: float) -> stats.Turn:
    curve = [numbers.get("p50", 100.0) * (0.9 + point / 500) for point in range(stats.POINTS)]
    return stats.Turn(numbers, curve, {"paths": ["DELIFEQ"], "versions": {"thing": "1.0"}})


@pytest.fixture
def turns() -> stats.Turns:
    """Three rounds on a machine that is three times slower in the second."""
    speeds = (1.0, 3.0, 1.0)

    def rounds(p50: float, rate: float) -> list[stats.Turn]:
        return [
            turn(**{"p50": p50 * s, "p99": 2 * p50 * s, "locks/s": rate / s, "failed": 0}) for s in speeds
        ]

    return {
        "caller": {"floor": rounds(200, 5000), "native": rounds(150, 6000), "redlock-py": rounds(1000, 900)},
        "threads-32": {
            "floor": rounds(400, 60_000),
            "native": rounds(900, 30_000),
            "own connections per thread": rounds(4000, 6000),
        },
    }


def test_a_turn_is_summed_up() -> None:
    samples = [microseconds * 1000 for microseconds in range(100, 0, -1)]
    one = stats.summed_up({"samples": samples, "locks": 100, "seconds": 0.5, "failed": 2, "error": "no"})
    assert one.numbers == {"p50": 51, "p99": 100, "locks/s": 200, "failed": 2}
    assert one.error == "no"
    assert one.curve == sorted(one.curve)
    assert len(one.curve) == stats.POINTS


def test_a_turn_without_samples_has_only_its_own_numbers() -> None:
    assert stats.summed_up({"samples": [], "numbers": {"per lock": 300}}).numbers == {
        "per lock": 300,
        "failed": 0,
    }


def test_ratios_are_taken_within_rounds(turns: stats.Turns) -> None:
    assert stats.ratio(turns["caller"], "p50", "native", "floor") == pytest.approx(0.75)
    assert stats.over_rounds(turns["caller"]["native"], "p50") == 150
    assert stats.over_rounds(turns["caller"]["native"], "p50", max) == 450


def test_a_ratio_to_several_is_one_to_the_best_of_the_round() -> None:
    rates = {"ours": [100, 100], "a": [10, 2], "b": [5, 20], "gone": []}
    there = {name: [turn(**{"locks/s": rate}) for rate in own] for name, own in rates.items()}
    assert stats.ratio(there, "locks/s", "ours", "a", "b", "gone", "unknown") == pytest.approx((10 + 5) / 2)
    assert stats.ratio(there, "locks/s", "ours", "gone") is None


def test_thresholds_are_judged(turns: stats.Turns) -> None:
    verdicts = {one["case"]: one for one in thresholds.judged(turns)}
    quorum = verdicts["1 thread, decided at quorum: p50 by the floor's"]
    assert (quorum["verdict"], quorum["is"], quorum["aim reached"]) == (thresholds.MET, "0.75 x", True)
    own = verdicts["32 threads against own connections per thread: locks/s"]
    assert (own["verdict"], own["must"]) == (thresholds.MET, "≥ 3.30 x")
    floor = verdicts["32 threads against floor32: locks/s"]
    assert floor["verdict"] == thresholds.MET
    peer = verdicts["1 thread: p50 of redlock-py by ours"]
    assert peer["verdict"] == thresholds.MET
    assert verdicts["import redlock_fast"]["verdict"] == thresholds.OPEN


def test_a_missed_threshold_is_called_so(turns: stats.Turns) -> None:
    turns["caller"]["native"] = turns["caller"]["redlock-py"]
    verdicts = {one["case"]: one["verdict"] for one in thresholds.judged(turns)}
    assert verdicts["1 thread, decided at quorum: p50 by the floor's"] == thresholds.MISSED


def test_one_failure_in_any_round_is_one_too_many() -> None:
    rounds = [turn(failed=failed) for failed in (0, 0, 1)]
    threshold = next(one for one in thresholds.THRESHOLDS if "failed" in one.name)
    assert threshold.judged({"stopped": {threshold.label: rounds}})["verdict"] == thresholds.MISSED


def test_every_threshold_names_implementations_of_its_scenario() -> None:
    cast = {scenario.name: {part.label for part in scenario.parts} for scenario in scenarios.SCENARIOS}
    for threshold in thresholds.THRESHOLDS:
        assert {threshold.label, *threshold.against} <= cast[threshold.scenario], threshold.case


@cases("scenario", scenarios.SCENARIOS, ids=lambda scenario: scenario.name)
def test_names_in_a_scenario_are_unique(scenario: scenarios.Scenario) -> None:
    labels = [part.label for part in scenario.parts]
    assert len(labels) == len(set(labels))


def test_a_part_of_the_programme() -> None:
    chosen = scenarios.all_scenarios(["threads", "batch-64", "native", "floor"])
    assert [scenario.name for scenario in chosen] == ["threads-8", "threads-32", "threads-64", "batch-64"]
    assert {part.label for scenario in chosen for part in scenario.parts} == {"native", "floor"}
    with pytest.raises(ValueError, match="no nobody; there are: caller"):
        scenarios.all_scenarios(["nobody"])


def test_quick_is_short_and_plays_every_workload() -> None:
    quick = scenarios.all_scenarios(quick=True)
    workloads = {part.job["workload"] for scenario in scenarios.SCENARIOS for part in scenario.parts}
    assert {part.job["workload"] for scenario in quick for part in scenario.parts} == workloads
    assert all(scenario.rounds == 1 and scenario.seconds <= 0.2 for scenario in quick)


def test_tables(turns: stats.Turns) -> None:
    text = tables.markdown(result(turns))
    assert "| **native** | 150 | 300 | 6,000 | 0.75 | | DELIFEQ | thing 1.0 |" in text
    assert "| own connections per thread | | 6,000 |" in text
    assert "- ghost: not there" in text
    assert "busy" not in text
    widths = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert min(widths) >= 3


def test_a_busy_machine_is_reported(turns: stats.Turns) -> None:
    busy = result(turns)
    busy["setting"]["load average"] = [4.0, 4.0]
    assert "do not quote" in tables.markdown(busy)


def result(turns: stats.Turns) -> dict[str, object]:
    setting = {
        "date": "2026-01-01",
        "machine": "a machine",
        "python": "3.11",
        "load average": [0.1, 0.2],
        "versions": {"redlock-fast": "0"},
        "servers": {"5": "Valkey"},
    }
    return report.build(setting, turns, {"ghost": "not there"}, thresholds.judged(turns))


@cases(
    "value, text",
    [(None, ""), (0, "0"), (7, "7"), (0.8567, "0.857"), (46.23, "46.2"), (12_345.6, "12,300")],
)
def test_amounts(value: float | None, text: str) -> None:
    assert tables.amount(value) == text


@pytest.mark.skipif(not plot.INSTALLED, reason="matplotlib is not installed")
@pytest.mark.skipif(not MORE, reason="to draw plots takes three seconds: make coverage has this test")
def test_plots_are_well_formed_and_always_the_same(turns: stats.Turns) -> None:
    turns["tasks-64"] = {"floor": turns["caller"]["floor"], "<&> peer": turns["threads-32"]["native"]}
    measured = {**plot.numbers_of(turns), "contention": {"plain, floor": {"1": 800.0, "8": 600.0}}}
    drawn = plot.drawn(measured)
    assert [name.removesuffix(".svg") for name in drawn] == list(plot.PLOTS)
    assert plot.drawn(measured) == drawn
    assert "redlock-fast, native" in drawn.pop("overview.svg")
    for text in drawn.values():
        words = [node.text for node in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
        assert "floor" in " ".join(filter(None, words))


def test_nothing_measured_is_no_plot() -> None:
    assert [draw({}) for draw in plot.PLOTS.values()] == [""] * len(plot.PLOTS)


def test_without_matplotlib_nothing_is_drawn(turns: stats.Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "INSTALLED", False)
    assert plot.drawn(plot.numbers_of(turns)) == {}


@pytest.mark.parametrize("name", plot.PLOTS)
def test_each_colour_of_a_plot_has_one_for_dark_pages(name: str) -> None:
    """Catches: a colour beside ``plot.COLOURS``, such as the white sheet that matplotlib draws."""
    text = (document.DOCS / f"{name}.svg").read_text()
    sheet, _, drawing = text.partition("</style>")
    assert "prefers-color-scheme: dark" in sheet
    assert re.findall(r"#[0-9a-f]{3,6}\b(?=[;\"])", re.sub(r"url\(.*?\)|href=\"[^\"]*\"", "", drawing)) == []


def test_every_library_of_the_record_has_a_line_of_its_own() -> None:
    """Catches: a peer that is drawn in the grey of "other"."""
    labels = {label for name, one in plot.recorded().items() if name != "contention" for label in one}
    assert [label for label in labels if plot.style(label) is plot.OTHER] == []


def test_pasting_replaces_one_block_only() -> None:
    text = "a\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nb\n<!-- x:begin -->\n<!-- x:end -->\n"
    assert document.replaced(text, "bench", "\nnew\n") == text.replace("old", "new")
    assert document.replaced(text, "x", "y").endswith("<!-- x:begin -->\ny\n<!-- x:end -->\n")


@cases("text", ["", "<!-- bench:begin -->", "<!-- bench:begin --><!-- bench:end -->" * 2])
def test_pasting_needs_the_block_once(text: str) -> None:
    with pytest.raises(ValueError, match="one <!-- bench:begin -->"):
        document.replaced(text, "bench", "new")


def test_the_documents_have_their_blocks() -> None:
    for path, blocks in document.BLOCKS.items():
        for block in blocks:
            assert document.replaced(path.read_text(), block, "new") != path.read_text()


def test_a_full_run_writes_numbers_for_users_and_limits_for_developers(
    turns: stats.Turns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PERFORMANCE", "NOTES"):
        copy = tmp_path / name
        copy.write_text(getattr(document, name).read_text())
        monkeypatch.setattr(document, name, copy)
    report.paste_all(result(turns))
    page, notes = document.PERFORMANCE.read_text(), document.NOTES.read_text()
    assert "| **native** | 150 | 300 | 6,000 | 0.75 |\n" in page
    assert "| case | must |" not in page
    assert "ghost" in notes
    assert "| case | must |" in notes


def test_progress_says_how_far_it_is() -> None:
    bar = Progress(10.0)
    bar.step(5.0, "first")
    line = bar.line("second", elapsed=20.0)
    assert " 50%" in line
    assert "0:20 left  second" in line
