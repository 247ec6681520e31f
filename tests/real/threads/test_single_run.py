"""Jobs that run once in a fleet, interrupted by signal handlers that raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.inside import core_of
from support.interruptions import interrupted, lose_another_lock
from support.keys import TTL, nothing_left, wipe
from support.renewing import MakeClient
from support.waiting import DEADLINE, eventually, start

from redlock_fast import Lock, LockAlreadyHeld
from redlock_fast.embedded import Master, Masters
from redlock_fast.threads import operations

#: In Python the caller knows when these return, or when they begin.
WHOLE = ("threads/client.py", "threads/lock.py", "threads/operations.py", "threads/single_run.py")
#: Where nothing is compiled: at the entry of the end.
BEFORE = ("call exit_run", "call exit_lock") if str(operations.__file__).endswith(".py") else ()


def nothing() -> None:
    """Ctrl-C alone."""


@pytest.mark.parametrize("handler", [nothing, lose_another_lock])
@pytest.mark.parametrize("once_per", [None, TTL])
def test_interrupted_at_any_moment(
    valkey: Masters, connected: MakeClient, once_per: float | None, handler: Callable[[], None]
) -> None:
    """Nothing stays behind before the end of the job. After it, the lock stays for the period."""
    c: Any = connected(valkey)
    for number in range(1000):
        run, ended = c.single_run("job", TTL / 4, once_per=once_per), []

        def job(run: Any = run, ended: list[bool] = ended) -> None:
            with run:
                ended.append(True)

        moment = interrupted(job, number, spared=WHOLE, handler=handler)
        if moment is None:
            break
        if moment in BEFORE:
            run.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        else:
            assert not core_of(c).client_state.held, moment
            assert run._lock is None, moment
            assert len(core_of(c).renewal().schedule) == 0, moment
            if ended and once_per:
                # A master that was lagging was not asked.
                eventually(lambda: sum(pttl(master) > 500 * TTL for master in valkey) >= 3, f"kept: {moment}")
            else:
                nothing_left(valkey)
        for master in valkey:
            wipe(master)
    assert number > 20, "there were moments to interrupt it at"
    for master in valkey:
        wipe(master)


def test_entered_by_two_threads_at_once(valkey: Masters, connected: MakeClient) -> None:
    """One of them has it. Catches: the other one, which is skipped, leaves the lock of the first behind."""
    c: Any = connected(valkey)
    run = c.single_run("job")
    new_lock, entered = run._new_lock, []

    def new_lock_late(resource: str) -> Lock:
        lock: Lock = new_lock(resource)
        if not entered:
            entered.append(True)
            entered.append(start(run.__enter__).result(DEADLINE))
        return lock

    run._new_lock = new_lock_late
    with pytest.raises(LockAlreadyHeld, match="entered already"):
        run.__enter__()
    assert entered[1].locked()
    run.__exit__(None, None, None)
    assert not entered[1].locked()
    nothing_left(valkey)


def pttl(master: Master) -> int:
    return int(master.ask("PTTL job")[1:])
