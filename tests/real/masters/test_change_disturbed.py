"""A change of the masters that is disturbed: by an interrupt, close, fork, a second change, a late client."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.event_loops import on_loops, until
from support.forking import exit_code, fork_child, fork_here
from support.inside import core_of
from support.keys import TTL, nothing_left
from support.moments import at_moment
from support.phases import write_phase_1, write_terms
from support.signalling import handling, to_main
from support.waiting import DEADLINE, PATIENT, eventually, start

from redlock_fast import AsyncFastRedlock, ClientClosed, ConfigError, FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.masters import change, connections, connector, electorate, roster
from redlock_fast.masters.lingering_close import LingeringSockets
from redlock_fast.masters.membership import PHASE_2

pytestmark = pytest.mark.usefixtures("all_masters")

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]


def interrupt() -> None:
    raise KeyboardInterrupt


# Interrupted generators are closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_moment_changes_all_or_nothing(
    masters: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is no obstacle to the next change."""
    old, new = masters.urls[:3], masters.urls[1:4]
    client, other = connected(old), connected(old)
    lock = client.lock("r", TTL)
    assert lock.acquire()
    files = tuple(room.__file__ for room in (change, connector, connections, electorate, roster))
    for number in itertools.count():
        one = core_of(client).change_of(
            new, old
        )  # the check of arguments is not of interest here, and takes long
        with monkeypatch.context() as patch:
            patch.setattr(type(core_of(client)), "change_of", lambda *_, one=one: one)
            again = at_moment(
                number, lambda: client.reconfigure(new, joint_with=old), interrupt, files.__contains__
            )
        del one
        assert len({master.lists for master in client.health()}) in (1, 3), number
        client.reconfigure(old)
        assert lock.extend(TTL) > 0
        assert other.acquire("r", TTL, blocking=False) is None, number
        if not again:
            break
    assert number > 20
    assert lock.release()
    nothing_left(masters)


def test_an_interrupt_between_the_engine_and_the_states_is_no_obstacle(
    masters: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has more masters than the client then, and keeps them for the next change."""
    old, new = masters.urls[:3], masters.urls[1:5]
    client = connected(old)
    with monkeypatch.context() as patch:
        patch.setattr(LingeringSockets, "grow", lambda *_: interrupt())
        with pytest.raises(KeyboardInterrupt):
            client.reconfigure(new, joint_with=old)
    for step in ({"masters": old}, {"masters": new, "joint_with": old}, {"masters": new}):
        client.reconfigure(**step)
        with client.lock("r", TTL):
            pass
    nothing_left(masters)


@both_clients
def test_a_second_change_at_the_same_time_is_refused(masters: Masters, connected: MakeClient) -> None:
    old, new = masters.urls[:3], masters.urls[2:]
    one = connected(old)
    for master in masters[3], masters[4]:
        master.pause()
    first = start(lambda: one.reconfigure(new, joint_with=old, timeout=DEADLINE))
    eventually(lambda: core_of(one).masters.connector.roster.change(), "the change is under way")
    with pytest.raises(ConfigError, match="another change of the masters of this client is under way"):
        one.reconfigure(old)
    for master in masters[3], masters[4]:
        master.resume()
    first.result(DEADLINE)
    one.reconfigure(new)
    assert {master.lists for master in one.health()} == {("masters",)}


@both_clients
def test_close_ends_a_change(masters: Masters, connected: MakeClient) -> None:
    one = connected(masters.urls[:1])
    for master in masters[1], masters[2]:
        master.pause()
    changing = start(
        lambda: one.reconfigure(masters.urls[:3], joint_with=masters.urls[:1], timeout=2 * DEADLINE)
    )
    eventually(lambda: core_of(one).masters.connector.roster.change(), "the change is under way")
    one.close()
    with pytest.raises(ClientClosed):
        changing.result(DEADLINE)


@on_loops
async def test_a_cancelled_change_has_changed_nothing(engine_name: str, masters: Masters) -> None:
    old, new = masters.urls[:1], masters.urls[:3]
    for master in masters[1], masters[2]:
        master.pause()
    async with AsyncFastRedlock(old, engine=engine_name, **PATIENT) as one:
        assert await one.connect()
        task = asyncio.create_task(one.reconfigure(new, joint_with=old, timeout=DEADLINE))
        await until(lambda: core_of(one).masters.connector.roster.change(), "the change is under way")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [master.lists for master in one.health()] == [("masters",)]
        async with one.lock("r"):
            for master in masters[1], masters[2]:
                master.resume()
            await one.reconfigure(new, joint_with=old, timeout=DEADLINE)


def test_a_child_of_fork_in_the_middle_of_a_change_is_at_the_step_before(
    masters: Masters, connected: MakeClient
) -> None:
    old, new = masters.urls[:1], masters.urls[:3]
    one = connected(old)
    for master in masters[1], masters[2]:
        master.pause()
    changing = start(lambda: one.reconfigure(new, joint_with=old, timeout=DEADLINE))
    eventually(lambda: core_of(one).masters.connector.roster.change(), "the change is under way")

    def in_child() -> None:
        assert [master.lists for master in one.health()] == [("masters",)]
        lock = one.acquire("r", TTL)
        assert lock
        assert lock.release()
        one.reconfigure(old)

    assert exit_code(fork_child(in_child)) == 0
    for master in masters[1], masters[2]:
        master.resume()
    changing.result(DEADLINE)


def test_a_child_whose_parent_forks_in_the_wait_does_not_wait(masters: Masters, client: MakeClient) -> None:
    """A signal handler forks, and the call goes on in the child, too."""
    old, new = masters.urls[:1], masters.urls[:3]
    one = client(old)
    assert one.connect(DEADLINE)
    parent, children, begun = os.getpid(), [], threading.Lock()
    for master in masters[1], masters[2]:
        master.pause()

    def fork_once() -> None:
        if begun.acquire(blocking=False):  # another signal may interrupt this handler
            children.append(fork_here())

    def forked() -> bool:
        to_main()  # again: a signal right before the wait does not end it
        return bool(children)

    def fork_in_the_wait() -> int:
        try:
            changed = core_of(one).masters.connector.monitor.changed
            eventually(lambda: changed._condition._waiters, "the change waits")
            eventually(forked, "the handler forks")
            return exit_code(children[0])
        finally:
            for master in masters[1], masters[2]:
                master.resume()

    begin = time.monotonic()
    with handling(fork_once):
        helper = start(fork_in_the_wait)
        try:
            one.reconfigure(new, joint_with=old, timeout=DEADLINE)
        except ClientClosed:
            os._exit(os.getpid() == parent or time.monotonic() > begin + DEADLINE / 2)
        finally:
            if os.getpid() != parent:
                os._exit(1)
        assert helper.result(DEADLINE) == 0


@both_clients
def test_a_server_under_a_second_address_is_no_new_master(masters: Masters, connected: MakeClient) -> None:
    old = masters.urls[:1]
    one = connected(old)
    again = [url.replace("127.0.0.1", "localhost") for url in old]

    def seen() -> object:
        """A busy machine may not connect in that time."""
        with pytest.raises((ConfigError, QuorumUnavailable)) as refused:
            one.reconfigure(again, joint_with=old, timeout=1.0)
        same = re.search(r"it is the same server as .* which has one vote", str(refused.value))
        return same and refused.type is ConfigError

    eventually(seen, "it is found out")
    assert [master.lists for master in one.health()] == [("masters",)]
    lock = one.acquire("r", TTL)
    one.reconfigure(masters.urls[1:2], joint_with=old)
    assert lock.extend(TTL) > 0
    assert lock.release()


# --- records that allow the client's list no more -----------------------------------------------------


PHASES: dict[str, dict[str, Any]] = {
    "only joint": {"steps": ("joint",), "toward": "new"},
    "phase 2": {"steps": PHASE_2},
}


@both_clients
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_was_late_can_be_changed(
    masters: Masters, client: MakeClient, raw: Raw, phase: str
) -> None:
    """It slept through phase 1, so its list is refused. ``reconfigure`` is what makes it work again."""
    old, new, nodes = masters.urls[:3], masters.urls, raw(masters)
    late = client(old, check_masters="auto")
    assert late.connect()
    eventually(lambda: all(master.listed for master in late.health()), "its list is in force")
    write_phase_1(masters, nodes, [0, 1, 2], [0, 1, 2, 3, 4])
    write_terms(nodes, epoch=3, **PHASES[phase])
    eventually(lambda: core_of(late).masters.connector.electorate.misconfigured, "its list is refused")
    with pytest.raises(ConfigError, match="it expects clients that are joint"):
        late.acquire("r", TTL)
    late.reconfigure(new, joint_with=old)
    lock = late.acquire("r", TTL)
    assert lock
    assert lock.release()


def test_no_attempt_counts_a_vote_that_the_records_refuse(
    masters: Masters, client: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One new master has another record. From the first attempt by the new lists it has no vote."""
    old, new, nodes = masters.urls[:1], masters.urls[:3], raw(masters)
    one = client(old, check_masters="auto")
    assert one.connect()
    eventually(lambda: all(master.listed for master in one.health()), "its list is in force")
    write_phase_1(masters, nodes, [0], [0, 1, 2])
    write_terms(nodes[2:3], epoch=3, steps=("old",), toward="old")
    seen: list[tuple[int, int]] = []
    voters = core_of(one).policy.voters
    records = core_of(one).masters.connector.electorate.records
    judge = records.judge

    def watched(*args: Any) -> None:
        seen.append((voters.lists.all, voters.asked()))
        judge(*args)

    monkeypatch.setattr(records, "judge", watched)
    one.reconfigure(new, joint_with=old, timeout=DEADLINE)
    assert voters.asked() == 0b011
    assert all(asked == 0b011 for every, asked in seen if every == 0b111), seen
