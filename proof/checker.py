"""An explicit-state model checker: breadth first, so that a counterexample is a shortest one.

A state is a nested tuple of integers, strings and None. For a model that is expected to hold, only a
16-byte digest of each state is kept, so that ten million states need about a gigabyte.
"""

from __future__ import annotations

import hashlib
import marshal
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

State = Any
Successors = Callable[[State], Iterable[tuple[str, State]]]
Judge = Callable[[State], str | None]


@dataclass(frozen=True)
class Model:
    """A transition system.

    Attributes:
        initial: The state to start from.
        successors: All steps from a state, each with a label for the trace.
        violation: Why a state is wrong, or None.
        stuck: Why a state without any step is wrong, or None.
        canonical: One representative of all states that differ only in the numbering of the masters.
        goal: With it, every state must be able to reach a state that it accepts.
    """

    initial: State
    successors: Successors
    violation: Judge
    stuck: Judge | None = None
    canonical: Callable[[State], State] | None = None
    goal: Callable[[State], bool] | None = None


@dataclass(frozen=True)
class Case:
    """One model with the verdict that is expected of it.

    Attributes:
        title: The variant and the bounds.
        build: Makes the model.
        violated: A word of the violation that must be found; "" when the model must hold.
        quick: Whether it is among the cases of ``QUICK=1``.
        traced: Keep the states themselves, also where the model must hold: they are no plain tuples.
    """

    title: str
    build: Callable[[], Model]
    violated: str = ""
    quick: bool = True
    traced: bool = False


@dataclass(frozen=True)
class Verdict:
    """What a search found: how many states, and the violation with the steps that lead to it."""

    states: int
    violation: str | None = None
    trace: tuple[str, ...] = ()

    def expected_by(self, case: Case) -> bool:
        if self.violation is None:
            return not case.violated
        return bool(case.violated) and case.violated in self.violation


class TooManyStates(Exception):
    """The bound on states was reached: the search proves nothing."""


def check(model: Model, *, traced: bool = True, limit: int = 15_000_000) -> Verdict:
    """Visit every reachable state.

    ``traced``: keep the states themselves. Without it a violation is found by a second, traced search.
    """
    if model.goal is not None:
        return _check_goal(model, limit)
    start = _canonical(model, model.initial)
    if reason := model.violation(start):
        return Verdict(1, reason)
    parents: dict[State, State] = {start: None}
    seen = set() if traced else {_digest(start)}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        last = True
        for _, following in model.successors(state):
            last = False
            following = _canonical(model, following)
            if traced:
                if following in parents:
                    continue
                parents[following] = state
            else:
                digest = _digest(following)
                if digest in seen:
                    continue
                seen.add(digest)
            if reason := model.violation(following):
                if not traced:
                    return check(model, limit=limit)
                return Verdict(len(parents), reason, _trace(model, parents, following))
            queue.append(following)
        if last and model.stuck and (reason := model.stuck(state)):
            if not traced:
                return check(model, limit=limit)
            return Verdict(len(parents), reason, _trace(model, parents, state))
        states = len(parents) if traced else len(seen)
        if states > limit:
            raise TooManyStates(f"more than {limit} states")
    return Verdict(len(parents) if traced else len(seen))


def _canonical(model: Model, state: State) -> State:
    return model.canonical(state) if model.canonical else state


def _digest(state: State) -> bytes:
    # Version 2 of the format has no references: equal states have equal bytes.
    return hashlib.blake2b(marshal.dumps(state, 2), digest_size=16).digest()


def _trace(model: Model, parents: dict[State, State], last: State) -> tuple[str, ...]:
    """The labels on the way to ``last``, replayed with the masters' own numbers."""
    path = [last]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    labels, state = [], model.initial
    for wanted in path[-2::-1]:
        label, state = next(step for step in model.successors(state) if _canonical(model, step[1]) == wanted)
        labels.append(label)
    return tuple(labels)


def _check_goal(model: Model, limit: int) -> Verdict:
    """Every reachable state must be able to reach the goal: no trap, no deadlock."""
    assert model.goal is not None
    start = _canonical(model, model.initial)
    parents: dict[State, State] = {start: None}
    before: dict[State, list[State]] = {start: []}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for _, following in model.successors(state):
            following = _canonical(model, following)
            if following not in before:
                before[following], parents[following] = [], state
                queue.append(following)
            before[following].append(state)
        if len(before) > limit:
            raise TooManyStates(f"more than {limit} states")
    reaching = {state for state in before if model.goal(state)}
    queue = deque(reaching)
    while queue:
        for earlier in before[queue.popleft()]:
            if earlier not in reaching:
                reaching.add(earlier)
                queue.append(earlier)
    traps = [state for state in before if state not in reaching]
    if not traps:
        return Verdict(len(before))
    reason = f"trap: from {len(traps)} of {len(before)} states the goal cannot be reached"
    return Verdict(len(before), reason, _trace(model, parents, traps[0]))


def put(items: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """``items`` with another value at ``index``."""
    return (*items[:index], value, *items[index + 1 :])


def majority(masters: int) -> int:
    return masters // 2 + 1
