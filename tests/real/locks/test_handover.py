"""Locks that go from one process to another by their tokens, with both clients, on real masters."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.clients import both_clients
from support.clocks import Jumping
from support.inside import core_of
from support.keys import TTL, nothing_left, paused, values, wipe
from support.makers import Raw
from support.python_process import PythonProcess
from support.renewing import THIRD, LossRecorder, MakeClient, held, renewed
from support.waiting import DEADLINE, eventually, start

from redlock_fast import LockAlreadyHeld, LockLost, QuorumUnavailable
from redlock_fast.embedded import Masters

pytestmark = [pytest.mark.usefixtures("all_masters"), both_clients]

WORKER = Path(__file__).parents[2] / "support" / "worker_handover.py"


def pair(masters: Masters, connected: MakeClient, **options: Any) -> tuple[Any, Any, bytes]:
    """A client, another one, and the token of "job", which the first one has detached."""
    one, two = connected(masters, **options), connected(masters, **options)
    lock = one.lock("job", TTL)
    assert lock.acquire()
    return one, two, lock.detach()


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_another_process_goes_on(
    masters: Masters, connected: MakeClient, engine_name: str, kind: str
) -> None:
    c = connected(masters)
    with c.lock("job", TTL) as lock:
        token = lock.token
        assert lock.detach() == token
        assert not lock.locked()
        assert lock.token is None
    assert c.stats().released == 0
    arguments = [sys.executable, str(WORKER), kind, engine_name, token.hex(), *masters.urls]
    with PythonProcess(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == f"{token.hex()} True\n"
        assert lock.release() is False
        assert not c.lock("job", TTL).acquire(blocking=False)
        worker.communicate("end\n", timeout=DEADLINE)
    assert worker.returncode == 0
    nothing_left(masters)
    assert lock.acquire(), "the object is free for a hold of its own"
    assert lock.token != token
    assert lock.release()


def test_not_held_before_it_is_confirmed(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    _, two, token = pair(masters, connected)
    lock = two.lock("job", TTL / 2, token=token)
    assert (lock.locked(), lock.remaining(), lock.token, lock.fencing_token) == (False, 0.0, None, None)
    with pytest.raises(LockLost):
        lock.check()
    with pytest.raises(LockLost):
        lock.detach()
    assert two.extend_many([lock]) == [False]
    assert two.release_many([lock]) == [False]
    assert 0 < lock.extend() < TTL / 2
    lock.check()
    assert lock.token == token
    with pytest.raises(LockAlreadyHeld):
        lock.acquire()
    assert lock.detach() == token
    assert two.lock("job", token=token).acquire(), "the token goes on"
    assert values(raw(masters), "job").count(token) >= 3
    assert two.lock("job", token=token).release() is True
    nothing_left(masters)


def test_a_first_call_connects(masters: Masters, connected: MakeClient, client: MakeClient) -> None:
    _, _, token = pair(masters, connected)
    assert client(masters).lock("job", token=token).extend() > 0
    assert client(masters).lock("job", token=token).release() is True
    nothing_left(masters)


@pytest.mark.parametrize("use", ["extend", "acquire", "with"])
def test_a_token_that_is_gone(masters: Masters, connected: MakeClient, use: str) -> None:
    """It is never acquired again, and another holder loses nothing."""
    one, two, token = pair(masters, connected)
    for master in masters:
        wipe(master)
    other = one.lock("job", TTL)
    assert other.acquire()
    lock = two.lock("job", token=token)

    def call() -> None:
        if use == "with":
            with lock:
                raise AssertionError("the body runs without the lock")
        getattr(lock, use)()

    for _ in range(2):
        with pytest.raises(LockLost):
            call()
    assert two.stats().lost == 1
    assert lock.release() is False
    other.extend(confirm=True)
    assert lock.acquire(blocking=False) is False, "after the release it is a lock like all others"
    assert other.release()
    assert lock.acquire()
    assert lock.release()


@pytest.mark.parametrize("use", ["extend", "acquire"])
def test_released_while_it_is_taken_over(masters: Masters, connected: MakeClient, use: str) -> None:
    """Catches: an object that holds a lock whose keys its release has deleted; another client acquires it."""
    one, two, token = pair(masters, connected, node_timeout=DEADLINE)
    lock = two.lock("job", TTL, token=token)
    with paused(masters, *range(len(masters))):
        taken = start(getattr(lock, use))
        eventually(lambda: lock._acquiring is not None, "the take-over has begun")
        released = start(lock.release)
        eventually(lambda: lock._handover is None, "the release has begun")
    assert released.result(DEADLINE) is True
    with pytest.raises(LockLost, match="a release of the lock of this token has begun"):
        taken.result(DEADLINE)
    assert not lock.locked()
    nothing_left(masters)
    assert one.lock("job", TTL).acquire(blocking=False)
    assert lock.acquire(blocking=False) is False, "after the release it is a lock like all others"


def test_a_released_token_is_not_renewed(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Its release has begun. Catches: an extend() that renews the key, and then refuses it."""
    _, two, token = pair(masters, connected)
    lock = two.lock("job", token=token)
    lock._handover.released = True
    for node in raw(masters):
        node.pexpire("job", int(500 * TTL))
    with pytest.raises(LockLost, match="has begun"):
        lock.extend(TTL)
    assert max(node.pttl("job") for node in raw(masters)) <= 500 * TTL


def test_a_timeout_bounds_a_take_over(masters: Masters, connected: MakeClient, client: MakeClient) -> None:
    """Masters that do not reply, and masters that cannot be reached."""
    _, two, token = pair(masters, connected, node_timeout=DEADLINE)
    begin = time.monotonic()
    with paused(masters, *range(len(masters))), pytest.raises(QuorumUnavailable, match="token"):
        two.lock("job", token=token).acquire(timeout=0.1)
    with (
        paused(masters, *range(len(masters))),
        pytest.raises(QuorumUnavailable),
        two.lock("job", token=token, timeout=0.1),
    ):
        raise AssertionError("the body runs without the lock")
    lone = client(["redis://127.0.0.1:1"], connect_timeout=DEADLINE)
    with pytest.raises(QuorumUnavailable):
        lone.lock("job", token=token).acquire(timeout=0.1)
    assert time.monotonic() - begin < DEADLINE
    assert two.lock("job", token=token).release()


def test_a_minority_is_no_quorum(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    _, two, token = pair(masters, connected)
    for master in masters[:3]:
        wipe(master)
    with pytest.raises(LockLost):
        two.lock("job", token=token).extend()
    lock = two.lock("job", token=token)
    assert lock.release() is False
    eventually(lambda: values(raw(masters), "job") == [None] * 5, "the minority's keys are deleted")


def test_too_few_masters_answer(masters: Masters, connected: MakeClient) -> None:
    """Nothing is believed and nothing is undone: the next call decides."""
    _, two, token = pair(masters, connected, node_timeout=0.3)
    lock = two.lock("job", token=token)
    with paused(masters, 0, 1, 2):
        with pytest.raises(QuorumUnavailable, match="token"):
            lock.extend()
        with pytest.raises(QuorumUnavailable), lock:
            raise AssertionError("the body runs without the lock")
        assert not lock.locked()
    eventually(lambda: _confirmed(lock), "the masters answer again")
    assert lock.release()
    nothing_left(masters)


def _confirmed(lock: Any) -> bool:
    try:
        return bool(lock.extend())
    except QuorumUnavailable:
        return False


def test_guarded_masters_confirm_nothing(masters: Masters, connected: MakeClient) -> None:
    """They may have forgotten another holder. Catches: votes that are counted as those of an extension."""
    _, two, token = pair(masters, connected)
    mask = core_of(two).policy.voters.mask
    core_of(two).policy.voters.mask = 0b00011
    try:
        with pytest.raises(QuorumUnavailable):
            two.lock("job", token=token).extend()
    finally:
        core_of(two).policy.voters.mask = mask
    assert two.lock("job", token=token).release()


def test_renewal_ends_here_and_begins_there(
    masters: Masters, connected: MakeClient, clock: Jumping, recorder: LossRecorder
) -> None:
    one, two = (connected(masters, ttl=60.0, clock=clock) for _ in range(2))
    lock = held(one, "job", on_lost=recorder)
    token = lock.detach()
    taken = two.lock("job", token=token, auto_extend=True)
    assert taken.acquire()
    clock.jump(THIRD)
    renewed(two, 1)
    assert one.stats().renewed == 0
    assert not core_of(one).client_state.held
    clock.jump(THIRD)
    clock.jump(THIRD)
    renewed(two, 2)
    assert taken.release()
    assert recorder.losses == []
    assert one.stats().lost == 0


def test_two_processes_with_one_token_are_one_holder(masters: Masters, connected: MakeClient) -> None:
    one, two = connected(masters), connected(masters)
    lock = one.lock("job", TTL)
    assert lock.acquire()
    taken = two.lock("job", TTL, token=lock.token)
    with taken:
        assert lock.locked()
        assert taken.locked()
        assert not two.lock("job").acquire(blocking=False)
    with pytest.raises(LockLost):
        lock.extend(TTL, confirm=True)
    assert lock.release() is False


def test_the_fencing_token_goes_beside_the_token(masters: Masters, connected: MakeClient) -> None:
    one, two = connected(masters), connected(masters)
    lock = one.lock("job", TTL, fencing=True)
    assert lock.acquire()
    number, token = lock.fencing_token, lock.detach()
    taken = two.lock("job", token=token)
    assert taken.acquire()
    assert taken.fencing_token is None
    assert taken.release()
    assert lock.acquire()
    assert lock.fencing_token is not None
    assert number is not None
    assert lock.fencing_token > number
    assert lock.release()


def test_a_detached_lock_survives_close_and_exit(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """The process that gave it up closes its client while a master owes the reply to the acquire."""
    one, two = connected(masters), connected(masters)
    masters[0].pause()
    try:
        lock = one.lock("job", TTL)
        assert lock.acquire()
        token = lock.detach()
        one.close()
    finally:
        masters[0].resume()
    eventually(lambda: values(raw(masters), "job") == [token] * 5, "the first master keeps the key")
    assert two.lock("job", token=token).release()
    nothing_left(masters)
