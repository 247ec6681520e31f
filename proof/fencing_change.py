"""Fencing tokens while the set of masters changes: is each token larger than every earlier one?

The model "membership" shows that there are never two holders, so an acquisition is one step here. A client at
"joint" takes, of each list, the q-th smallest of that list's counters. The larger one is the token, and a
quorum of each list is raised to it.

A resource may be acquired at "old" and then at "new", without a joint acquisition in between. Then only the
clocks of the masters order its tokens: a counter begins at its master's clock, and a grant never leaves it
behind that clock rounded down to steps of half of ``max_ttl``.

- *acquire*: any masters grant that contain a quorum of each list of the step. As few as possible are raised.
- *begin*, *complete*: an attempt that counts by the old list lasts up to ``max_ttl``; its client may leave
  "old" before its end.
- *leave*, *return*: no client is at "old" any more; a client restarts at "old". Only phase 1 allows it.
- *phase 2*: allowed ``wait`` ticks after the last client left "old".
- *forget*: a master loses its counter, and is not trusted for ``max_ttl`` (the restart guard).

Violation: a token is not larger than every earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations, product
from typing import NamedTuple

from .checker import Case, Model, majority, put
from .membership import CHANGES, JOINT, NEW, OLD, STEPS, Change, change

#: One tick of a clock, in the unit of counters: more than all counting within a run.
TICK = 100
FRESH, STALE = None, 1


@dataclass(frozen=True)
class Rules:
    """One variant, and its bounds.

    Attributes:
        token: Of the lists' numbers the "larger" one, or that of the "old" list; "union": the q-th smallest
            of all counters.
        raised: The lists of which a quorum is raised to the token: "both", or "source", whose number it is.
        wait: Ticks from the last client at "old" to phase 2.
        skew: How far each master's clock is ahead, in ticks.
        max_ttl, step: In ticks.
        left_over: The new masters have counters from an earlier time; else none.
    """

    change: Change
    token: str = "larger"
    raised: str = "both"
    wait: int = 8
    skew: tuple[int, ...] = (1, 1, 1, 0, 0, 0)
    max_ttl: int = 4
    step: int = 2
    left_over: bool = True
    acquire: int = 3
    forget: int = 0


class Master(NamedTuple):
    """``silent``: for how many ticks more it is not trusted."""

    counter: int | None
    silent: int


class State(NamedTuple):
    """``left``: ticks since a client was at "old", None while there is one. ``old``: the age of an attempt.

    ``last``: the largest token. ``acquire``, ``forget``: how many of these steps there may still be.
    """

    now: int
    phase: int
    left: int | None
    old: int | None
    masters: tuple[Master, ...]
    last: int
    acquire: int
    forget: int
    fault: str = ""


def counted(rules: Rules, counter: int | None, clock: int) -> int:
    """The counter after one grant."""
    if counter is None:
        return clock * TICK
    return max(counter + 1, (clock - clock % rules.step) * TICK)


def nexts(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Each step that may come next, and where it leads."""
    if state.now <= rules.wait + rules.step:
        yield "a tick", tick(rules, state)
    if state.phase == 0:
        if state.left is None:
            yield "the last client leaves old", state._replace(left=0)
        else:
            yield "a client returns to old", state._replace(left=None)
            if state.left >= rules.wait:
                yield "phase 2", state._replace(phase=1)
    if state.forget:
        for at, master in enumerate(state.masters):
            if master.counter is not None:
                lost = put(state.masters, at, Master(None, rules.max_ttl))
                yield f"{at} forgets", state._replace(masters=lost, forget=state.forget - 1)
    if state.old is not None:
        yield from acquisitions(rules, state._replace(old=None), OLD)
    if not state.acquire:
        return
    spent = state._replace(acquire=state.acquire - 1)
    if state.left is None:
        if state.old is None:
            yield "an attempt begins at old", spent._replace(old=0)
        yield from acquisitions(rules, spent, OLD)
    yield from acquisitions(rules, spent, JOINT)
    if state.phase == 1:
        yield from acquisitions(rules, spent, NEW)


def tick(rules: Rules, state: State) -> State:
    return state._replace(
        now=state.now + 1,
        left=None if state.left is None else min(rules.wait, state.left + 1),
        old=None if state.old is None or state.old + 1 >= rules.max_ttl else state.old + 1,
        masters=tuple(one._replace(silent=max(0, one.silent - 1)) for one in state.masters),
    )


def acquisitions(rules: Rules, state: State, step: int) -> Iterator[tuple[str, State]]:
    """Every acquisition that succeeds at ``step``: whichever masters granted, and were raised."""
    lists = rules.change.lists(step)
    trusted = sorted(at for at in rules.change.asked(step) if not state.masters[at].silent)
    for asked in subsets(trusted):
        if any(len(one.intersection(asked)) < majority(len(one)) for one in lists):
            continue
        numbers = {at: counted(rules, state.masters[at].counter, state.now + rules.skew[at]) for at in asked}
        token, raised = decided(rules, lists, numbers)
        choices = [raises(one, numbers, token) for one in raised]
        for lifted in {frozenset(chain(*choice)) for choice in product(*choices)}:
            masters = list(state.masters)
            for at in asked:
                masters[at] = masters[at]._replace(counter=token if at in lifted else numbers[at])
            fault = f"token {token} after {state.last}" if token <= state.last else ""
            label = f"token {token} at {STEPS[step]}, counted {numbers}, raised {sorted(lifted)}"
            last = max(token, state.last)
            yield label, state._replace(masters=tuple(masters), last=last, fault=fault)


def decided(
    rules: Rules, lists: tuple[frozenset[int], ...], numbers: dict[int, int]
) -> tuple[int, tuple[frozenset[int], ...]]:
    """The token, and the lists of which a quorum must be raised to it."""
    if rules.token == "union":
        union = frozenset(chain(*lists))
        return sorted(numbers.values())[majority(len(union)) - 1], (union,)
    ranks = [sorted(numbers[at] for at in one if at in numbers)[majority(len(one)) - 1] for one in lists]
    token = max(ranks) if rules.token == "larger" else ranks[0]
    if rules.raised == "both":
        return token, lists
    return token, (lists[ranks.index(token)],)


def raises(one: frozenset[int], numbers: dict[int, int], token: int) -> list[tuple[int, ...]]:
    """The smallest groups whose raise makes a quorum of this list vouch for the token."""
    vouching = sum(numbers[at] == token for at in one if at in numbers)
    behind = sorted(at for at in one if at in numbers and numbers[at] < token)
    return list(combinations(behind, max(0, majority(len(one)) - vouching)))


def subsets(items: list[int]) -> Iterable[tuple[int, ...]]:
    return chain.from_iterable(combinations(items, size) for size in range(1, len(items) + 1))


def canonical(rules: Rules, state: State) -> State:
    """Masters of the same lists with the same clock are interchangeable."""
    groups: dict[object, list[int]] = {}
    for at in range(len(state.masters)):
        key = (at in rules.change.old, at in rules.change.new, rules.skew[at])
        groups.setdefault(key, []).append(at)
    masters = list(state.masters)
    for group in groups.values():
        ordered = sorted((state.masters[at] for at in group), key=lambda one: (one.counter or 0, one.silent))
        for at, one in zip(group, ordered, strict=True):
            masters[at] = one
    return state._replace(masters=tuple(masters))


def fencing_change(rules: Rules) -> Model:
    masters = tuple(
        Master(STALE if at in rules.change.old or rules.left_over else FRESH, 0)
        for at in range(len(rules.change.old | rules.change.new))
    )
    initial = State(1, 0, None, None, masters, 0, rules.acquire, rules.forget)
    return Model(
        initial,
        partial(nexts, rules),
        lambda state: state.fault or None,
        canonical=partial(canonical, rules),
    )


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, partial(fencing_change, rules), violated, quick, traced=True)


#: One master by another, whose clock is behind.
ONE = Rules(change("0", "1"), skew=(1, 0))
#: The same, with finer ticks, and clocks that differ by a little less than half of ``max_ttl``.
FINE = replace(ONE, max_ttl=8, step=4, wait=16, skew=(3, 0), acquire=2)
GROWN = Rules(CHANGES["1 to 3"], skew=(1, 0, 0))
REPLACED = Rules(CHANGES["1 of 3 replaced"], skew=(1, 0, 0, 0))

CASES = [
    case("the q-th smallest of the union", replace(GROWN, token="union"), "token"),
    case("the number of the old list", replace(ONE, token="old", raised="source"), "token"),
    case("only the list of the larger number is raised", replace(ONE, raised="source"), "token"),
    case("phase 2 does not wait", replace(ONE, wait=0), "token"),
    case("phase 2 waits for max_ttl", replace(FINE, wait=8), "token"),
    case("phase 2 waits for 1.5 max_ttl", replace(FINE, wait=12), "token"),
    case("clocks differ by 0.75 max_ttl", replace(FINE, skew=(6, 0)), "token", quick=False),
    case("ours, phase 2 waits for 2 max_ttl", FINE),
    case("ours, a new master without counters", replace(FINE, left_over=False), quick=False),
    case("ours, 3 acquisitions", ONE),
    case("ours, 1 to 3", GROWN, quick=False),
    case("ours, 1 to 3, a master forgets", replace(GROWN, forget=1), quick=False),
    case("ours, 1 of 3 replaced", REPLACED, quick=False),
    case("ours, 3 to 5", Rules(CHANGES["3 to 5"], skew=(1, 0, 0, 0, 0), acquire=2), quick=False),
]
