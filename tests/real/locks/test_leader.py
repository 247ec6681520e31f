"""Leader election on real masters, with both clients: in one process, and as a process for each candidate."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.candidates import Election
from support.clients import both_clients
from support.clocks import Jumping
from support.keys import paused
from support.phases import AT_PHASE_2, NEW, OLD, TO_NEW, options, write_phase_1, write_terms
from support.proxy import Proxy
from support.renewing import MakeClient
from support.waiting import DEADLINE, eventually, start
from support.worker_leader import now

from redlock_fast import ClientClosed, ConfigError
from redlock_fast.algorithm.renewal_schedule import GONE, LATE, UNCONFIRMED
from redlock_fast.embedded import Masters
from redlock_fast.locks.leader import CLOSED, FAILED, STEPPED_DOWN, STOPPED

pytestmark = both_clients

#: Of the candidates that are processes.
TTL = 3.0
#: Seconds that a hung master is waited for.
HUNG = 0.3


class Diary:
    """The callbacks of candidates, which record their calls."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def __call__(self, name: str) -> dict[str, Any]:
        def on_elected(leader: Any) -> None:
            self.events.append((name, "elected", leader.is_leader))

        def on_lost(leader: Any, reason: str) -> None:
            self.events.append((name, reason, leader.is_leader))

        return {"identity": name, "on_elected": on_elected, "on_lost": on_lost}

    def losses(self) -> list[str]:
        return [what for _, what, _ in self.events if what != "elected"]


@pytest.fixture
def diary() -> Diary:
    return Diary()


def elected(diary: Diary, count: int) -> None:
    """Wait for this number of calls of on_elected: ``leader.wait`` may return before the call."""
    eventually(lambda: len(diary.events) - len(diary.losses()) == count, f"elections: {diary.events}")


def lost(diary: Diary, *reasons: str) -> None:
    """Wait for these losses."""
    eventually(lambda: diary.losses() == [*reasons], f"the losses {reasons}: {diary.events}")


def free(masters: Masters) -> None:
    """Only the fencing counter is left."""
    eventually(lambda: [master.ask("EXISTS chair") for master in masters] == [":0"] * 5, "it is released")


# --- in one process -------------------------------------------------------------------------------


def test_one_leads_and_another_follows(valkey: Masters, connected: MakeClient, diary: Diary) -> None:
    one, two = (connected(valkey) for _ in range(2))
    with one.leader("chair", **diary("one")) as first:
        assert first.wait(DEADLINE)
        elected(diary, 1)
        with two.leader("chair", **diary("two")) as second:
            assert not second.wait(0.1)
            assert (first.is_leader, second.is_leader, second.fencing_token) == (True, False, None)
            assert second.current() == first.identity == "one"
            assert not second.step_down()
            assert first.step_down(pause=60.0)
            assert not first.is_leader
            assert second.wait(DEADLINE)
            assert second.fencing_token > first.fencing_token
            assert not first.wait(0.0)
            elected(diary, 2)
        assert not second.is_leader
    free(valkey)
    assert diary.events == [
        ("one", "elected", True),
        ("one", STEPPED_DOWN, False),
        ("two", "elected", True),
        ("two", STOPPED, False),
    ]


def test_it_campaigns_again(valkey: Masters, connected: MakeClient, diary: Diary) -> None:
    """After it stepped down, and after a quorum of masters lost the key."""
    c = connected(valkey, ttl=3.0, restart_guard="off")
    with c.leader("chair", **diary("one")) as leader:
        assert leader.wait(DEADLINE)
        fences = [leader.fencing_token]
        assert leader.step_down(pause=0.0)
        assert leader.wait(DEADLINE)
        fences.append(leader.fencing_token)
        for master in valkey:
            assert master.ask("DEL chair").startswith(":")
        lost(diary, STEPPED_DOWN, GONE)
        assert leader.wait(DEADLINE)
        fences.append(leader.fencing_token)
        assert fences == sorted(set(fences))
    assert [leads for _, what, leads in diary.events if what != "elected"] == [False] * 3


def test_the_clock_ends_it_without_another_thread(
    valkey: Masters, connected: MakeClient, clock: Jumping, diary: Diary
) -> None:
    """As for a process that was stopped. The first look after that is False, and every later one."""
    c = connected(valkey, ttl=60.0, clock=clock, node_timeout=HUNG)
    with c.leader("chair", **diary("one"), notice=20.0) as leader:
        assert leader.wait(DEADLINE)
        fence = leader.fencing_token
        with paused(valkey, 0, 1, 2):
            clock.jump(45.0)
            assert not leader.is_leader
            assert leader.fencing_token == fence, "a late write has the old number"
            lost(diary, UNCONFIRMED)
        assert leader.wait(DEADLINE), "the lock was released"
        assert leader.fencing_token > fence
        clock.jump(61.0)
        assert not leader.is_leader
        eventually(lambda: len(diary.losses()) >= 2, "the loss is reported")
        assert diary.losses()[1] in (LATE, GONE)


def test_masters_that_die_and_come_back(valkey: Masters, client: MakeClient, diary: Diary) -> None:
    """It campaigns on without a quorum, also for longer than an acquire tries."""
    for number in (0, 1, 2):
        valkey[number].kill()
    c = client(valkey, connect_timeout=0.2, restart_guard="off")
    with c.leader("chair", **diary("one")) as leader:
        eventually(lambda: c.stats().unavailable >= 2, "two acquires fail")
        assert not leader.wait(0.0)
        for number in (0, 1, 2):
            valkey[number].restart()
        assert leader.wait(DEADLINE)


def test_a_refused_list_is_no_end_of_the_campaign(
    valkey: Masters,
    client: MakeClient,
    raw: Callable[[Masters], list[redis.Redis]],
    diary: Diary,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client misses the phases of a change of masters, until ``reconfigure``."""
    nodes, old, new = raw(valkey), valkey.urls[:3], [valkey.urls[n] for n in NEW]
    late = client(old, **options(TTL))
    with late.leader("chair", **diary("late")) as leader:
        elected(diary, 1)
        fence = leader.fencing_token
        eventually(lambda: all(master.listed for master in late.health()), "its list is in force")
        write_phase_1(valkey, nodes, OLD, NEW)
        for terms in TO_NEW, AT_PHASE_2:
            write_terms(nodes, **terms)
        eventually(diary.losses, "its lease ends")

        def refusal() -> ConfigError:
            with pytest.raises(ConfigError, match="the list that the other masters have") as raised:
                leader.wait(DEADLINE)
            return raised.value

        before = refusal()
        eventually(lambda: refusal() is not before, "the next acquire is refused, too")
        late.reconfigure(new, joint_with=old, timeout=DEADLINE)
        elected(diary, 2)
        assert leader.wait(DEADLINE)
        assert leader.fencing_token > fence
    logged = [record for record in caplog.records if record.getMessage() == "leader-error"]
    assert len(logged) == 1
    assert logged[0].exc_info
    assert isinstance(logged[0].exc_info[1], ConfigError)


def test_a_closed_client_ends_the_campaign(valkey: Masters, connected: MakeClient, diary: Diary) -> None:
    one, two = (connected(valkey) for _ in range(2))
    leader, waiting = one.leader("chair", **diary("one")), two.leader("chair", **diary("two"))
    with pytest.raises(RuntimeError, match="does not campaign"):
        leader.wait()
    leader.start()
    assert leader.wait(DEADLINE)
    waiting.start()
    waits = start(waiting.wait)
    two.close()
    with pytest.raises(ClientClosed):
        waits.result(DEADLINE)
    one.close()
    assert not leader.is_leader
    lost(diary, CLOSED)
    with pytest.raises(ClientClosed):
        leader.start()
    for candidate in (leader, waiting):
        candidate.stop()


def test_on_elected_that_raises(
    valkey: Masters, connected: MakeClient, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    """Another candidate gets its turn."""

    def raises(leader: Any) -> None:
        raise ValueError("on purpose")

    with connected(valkey).leader("chair", **{**diary("one"), "on_elected": raises}) as leader:
        lost(diary, FAILED)
        assert not leader.is_leader
    assert any(record.getMessage() == "leader-error" for record in caplog.records)


def test_callbacks_that_step_down_and_stop(valkey: Masters, connected: MakeClient, diary: Diary) -> None:
    """on_elected steps down, on_lost asks again and stops: nothing waits for itself."""
    c, done = connected(valkey), []
    if hasattr(c, "target"):  # asyncio

        async def on_elected(leader: Any) -> None:
            done.append(await leader.step_down())

        async def on_lost(leader: Any, reason: str) -> None:
            done.extend([reason, await leader.step_down()])
            await leader.stop()
    else:

        def on_elected(leader: Any) -> None:
            done.append(leader.step_down())

        def on_lost(leader: Any, reason: str) -> None:
            done.extend([reason, leader.step_down()])
            leader.stop()

    with c.leader("chair", on_elected=on_elected, on_lost=on_lost) as leader:
        eventually(lambda: len(done) == 3, "both are called")
        assert {*done} == {True, STEPPED_DOWN, False}
        assert not leader.wait()
    free(valkey)


def test_on_lost_begins_a_campaign_and_stops_it(valkey: Masters, connected: MakeClient) -> None:
    """That campaign begins when on_lost has returned, so a stop inside of on_lost waits for neither."""
    c, reasons = connected(valkey), []
    if hasattr(c, "target"):  # asyncio

        async def on_lost(leader: Any, reason: str) -> None:
            for _ in range(2):
                await leader.start()
                await leader.stop()
            reasons.append(reason)
    else:

        def on_lost(leader: Any, reason: str) -> None:
            for _ in range(2):
                leader.start()
                leader.stop()
            reasons.append(reason)

    leader = c.leader("chair", on_lost=on_lost)
    leader.start()
    assert leader.wait()
    start(leader.stop).result(DEADLINE)
    assert reasons == [STOPPED]
    assert not leader.wait()
    free(valkey)


def test_work_that_goes_on_after_a_stop(valkey: Masters, connected: MakeClient) -> None:
    """The next campaign waits for it: on_elected runs once at a time, and sees no later term as its own."""
    c, seen, go = connected(valkey), [], threading.Event()
    if hasattr(c, "target"):  # asyncio

        async def on_elected(leader: Any) -> None:
            seen.append("begins")
            if len(seen) == 1:
                await leader.stop()
                await leader.start()
                while not go.is_set():
                    await asyncio.sleep(0.01)
            seen.append("leads" if leader.is_leader else "does not")
    else:

        def on_elected(leader: Any) -> None:
            seen.append("begins")
            if len(seen) == 1:
                leader.stop()
                leader.start()
                go.wait(DEADLINE)
            seen.append("leads" if leader.is_leader else "does not")

    with c.leader("chair", on_elected=on_elected) as leader:
        eventually(lambda: seen, "it is elected")
        assert not leader.wait(1.0)
        go.set()
        eventually(lambda: len(seen) == 4, "it is elected again")
        assert seen == ["begins", "does not", "begins", "leads"]
    free(valkey)


# --- a process for each candidate -----------------------------------------------------------------


@pytest.fixture
def proxies(valkey: Masters) -> Iterator[list[Proxy]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Proxy(master.port)) for master in valkey[:3]]


def test_at_no_instant_two_leaders(
    valkey: Masters, proxies: list[Proxy], engine_name: str, client_mode: str, tmp_path: Path
) -> None:
    """A master dies; then a leader is cut off, the next is stopped, and the next is killed."""
    urls = valkey.urls[:3]
    mode = {"engine": engine_name, "client_mode": client_mode, "store": valkey[3].port}
    with Election(tmp_path / "events", ttl=TTL, **mode) as election:
        cut_off = election.enter("cut off", [proxy.url for proxy in proxies])
        assert election.elected(1) is cut_off
        election.enter("a", urls)
        election.enter("b", urls)
        assert cut_off.look() == {"leads": True, "written": True}

        valkey[2].kill()
        began = election.events("elected")[0]["at"]
        eventually(lambda: now() > began + 1.2 * TTL, "a lease passes")
        assert not election.events("lost"), "a minority does not matter"
        valkey[2].restart()

        for proxy in proxies:
            proxy.hold(replies=False)
        second = election.elected(2)
        loss = election.events("lost")[0]
        assert loss["reason"] == UNCONFIRMED
        assert loss["at"] < election.events("elected")[1]["at"], "reported before another was elected"
        assert cut_off.look() == {"leads": False, "written": True}, "the other has not written yet"
        assert second.look() == {"leads": True, "written": True}
        assert cut_off.look() == {"leads": False, "written": False}
        for proxy in proxies:
            proxy.deliver()

        second.stop()
        third = election.elected(3)
        assert third.look() == {"leads": True, "written": True}
        second.resume()
        assert second.look() == {"leads": False, "written": False}, "at its very first look"

        third.kill()
        fourth = election.elected(4)
        killed, elected = third.killed, election.events("elected")[3]["at"]
        assert killed is not None
        assert elected - killed < TTL + DEADLINE / 4
        assert fourth.look() == {"leads": True, "written": True}
        election.check()
        fourth.leave()
        election.elected(5)
