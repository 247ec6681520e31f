"""The model checker: it convicts a broken model by a shortest trace, and counts what it visits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proof import proved, suite
from proof.checker import Model, TooManyStates, check

README = Path(suite.__file__).with_name("README.md")


def counter(limit: int, bad: int, **options: object) -> Model:
    """One number that grows by 1 or by 2 up to ``limit``; ``bad`` is the wrong one."""

    def successors(state: tuple[int]) -> Iterator[tuple[str, tuple[int]]]:
        for step in (1, 2):
            if state[0] + step <= limit:
                yield f"+{step}", (state[0] + step,)

    return Model((0,), successors, lambda state: "bad" if state[0] == bad else None, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("traced", [True, False])
def test_a_violation_has_a_shortest_trace(traced: bool) -> None:
    verdict = check(counter(9, 5), traced=traced)
    assert verdict.violation == "bad"
    assert len(verdict.trace) == 3
    assert sum(int(label) for label in verdict.trace) == 5


@pytest.mark.parametrize("traced", [True, False])
def test_every_state_is_visited_once(traced: bool) -> None:
    assert check(counter(9, 10), traced=traced).states == 10


@pytest.mark.parametrize("traced", [True, False])
def test_a_state_without_steps_is_judged(traced: bool) -> None:
    verdict = check(counter(4, 5, stuck=lambda state: f"stuck at {state[0]}"), traced=traced)
    assert (verdict.violation, verdict.trace) == ("stuck at 4", ("+2", "+2"))


def test_the_initial_state_is_judged() -> None:
    assert check(counter(4, 0)).violation == "bad"


def test_a_trap_is_found() -> None:
    verdict = check(counter(4, 9, goal=lambda state: state[0] == 3))
    assert verdict.violation is not None
    assert verdict.violation.startswith("trap: from 1 of 5 states")
    assert check(counter(4, 9, goal=lambda state: state[0] == 4)).violation is None


def test_a_trace_has_the_own_numbers_of_the_masters() -> None:
    def successors(state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        for m in (0, 1):
            after = list(state)
            after[m] += 1
            yield f"master {m}", (after[0], after[1])

    def canonical(state: tuple[int, int]) -> tuple[int, ...]:
        return tuple(sorted(state))

    model = Model((0, 0), successors, lambda s: "bad" if sorted(s) == [1, 2] else None, canonical=canonical)
    verdict = check(model)
    assert len(verdict.trace) == 3
    assert sorted(verdict.trace.count(f"master {m}") for m in (0, 1)) == [1, 2]


def test_too_many_states_prove_nothing() -> None:
    with pytest.raises(TooManyStates):
        check(counter(99, 100), limit=10)


@pytest.mark.parametrize(
    ("model", "title"),
    [
        ("connections", "releases behind all owed SETs"),
        ("guard", "auto, empty, B known"),
        ("sentinel", "min-replicas, no silence"),
        ("reentrant", "ours: count in the client"),
        ("multilock", "one after the other"),
        ("fencing_change", "phase 2 does not wait"),
        ("phases", "ours, 1 to 3"),
        ("reconfigure", "an extension counts by the lists of the acquire"),
        ("records", "ours, 1 shared"),
    ],
)
def test_a_small_case_has_its_verdict(model: str, title: str) -> None:
    case = next(case for case in suite.cases(model) if case.title == title)
    assert check(case.build(), traced=case.traced or bool(case.violated)).expected_by(case)


@pytest.mark.parametrize("model", suite.MODELS)
def test_each_model_has_a_broken_variant_and_a_row_in_the_readme(model: str) -> None:
    cases, text = suite.cases(model), README.read_text()
    assert any(case.violated for case in cases)
    assert any(not case.violated for case in cases)
    assert len({case.title for case in cases}) == len(cases)
    assert [case.title for case in cases if f"| {case.title} |" not in text] == []


@pytest.mark.parametrize("model", suite.MODELS)
def test_all_cases_passed_since_the_model_was_changed(model: str) -> None:
    assert proved.is_proved(model, len(suite.cases(model))), f"run `make proof ARGS={model}`: it is recorded"


def test_a_change_of_a_model_or_of_what_it_imports_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proved, "FILE", tmp_path / "proved.json")
    model, common = tmp_path / "model.py", tmp_path / "common.py"
    model.write_text("from .common import put\n\nBOUND = 2\n")
    common.write_text("put = 1\n")
    proved.record({"model": 1}, {"model": proved.digest("model")})
    model.write_text("from .common import put\n# what it is\n\nBOUND = 2\n")
    assert proved.is_proved("model", 1)
    assert not proved.is_proved("model", 2)
    common.write_text("put = 2\n")
    assert not proved.is_proved("model", 1)
    proved.record({"model": 1}, {"model": proved.digest("model")})
    model.write_text("from .common import put\n\nBOUND = 1\n")
    assert not proved.is_proved("model", 1)
