"""What the library tells of mistakes that work, or that cannot work."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import ROOT, Command, running, sh
from support.makers import MakeClient
from support.waiting import eventually

from redlock_fast import AsyncFastRedlock, ConfigError, Contended, FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

REFUSED = "WRONGPASS invalid username-password pair or user is disabled."


@pytest.fixture
def secured() -> Iterator[Masters]:
    with Masters(3, options=("--requirepass", "secret")) as masters:
        yield masters


def test_a_wrong_password_is_named_once(secured: Masters, client: MakeClient) -> None:
    names = [f"127.0.0.1:{master.port}/0" for master in secured]
    wrong = client([f"redis://me:wrong@127.0.0.1:{master.port}" for master in secured])
    with pytest.raises(QuorumUnavailable) as caught:
        wrong.acquire("r", blocking=False)
    text = str(caught.value)
    assert "all 3 masters refuse this user or password" in text
    assert text.endswith(f"; {', '.join(names)}: {REFUSED}")
    assert (text.count(REFUSED), "can be reached" in text) == (1, False)
    assert [(one.master, one.cause) for one in caught.value.causes] == [(name, REFUSED) for name in names]
    urls = [f"redis://me:wrong@127.0.0.1:{secured[0].port}", *("redis://127.0.0.1:1", "redis://127.0.0.1:2")]
    with pytest.raises(QuorumUnavailable, match="1 of 3 masters refuse this user or password"):
        client(urls).acquire("r", blocking=False)


def test_milliseconds(valkey: Masters, connected: MakeClient, caplog: pytest.LogCaptureFixture) -> None:
    c = connected(valkey)
    with pytest.raises(ConfigError, match=r"not 10000 s; it is in seconds: did you mean 10\?"):
        c.lock("r", 10_000)
    with pytest.raises(ConfigError, match=r"not 100 s$"):
        c.lock("r", 100)
    lock = c.lock("r", timeout=999)
    assert "long-timeout" not in caplog.text
    assert c.lock("taken").acquire()
    assert c.lock("r", timeout=2000).acquire(timeout=3000)
    assert lock.acquire(blocking=False) is False
    hints = [one.getMessage() for one in caplog.records if "long-timeout" in one.getMessage()]
    assert hints == ["long-timeout: timeout=2000 is in seconds: did you mean 2?"]


def test_a_client_for_threads_in_an_event_loop(
    valkey: Masters, client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = client(valkey), client(valkey)

    async def main(c: FastRedlock, call: Callable[[FastRedlock], object]) -> None:
        call(c)

    def locks(c: FastRedlock) -> None:
        with c.lock("r"):
            pass

    async def in_a_thread() -> None:
        await asyncio.to_thread(locks, second)

    asyncio.run(in_a_thread())
    assert "blocks-event-loop" not in caplog.text
    asyncio.run(main(first, locks))
    assert caplog.text.count("blocks-event-loop: this call blocks the event loop") == 1


def test_a_thread_that_waits_for_itself(
    valkey: Masters, connected: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets a hint at once. Tasks of one thread take turns, and get none."""
    c = connected(valkey)
    hint = "this thread holds it by another lock object: use that one, or a reentrant lock (rlock)"
    with c.lock("r"):
        with pytest.raises(Contended) as caught, c.lock("r", timeout=0.05):
            pass
        assert str(caught.value).endswith(f"; {hint}")
        assert caplog.text.count(f"waits-for-itself: 'r': {hint}") == 1
        caplog.clear()

        async def other_task(a: AsyncFastRedlock) -> None:
            with pytest.raises(Contended) as caught:
                async with a.lock("task", timeout=0.05):
                    pass
            assert hint not in str(caught.value)

        async def tasks() -> None:
            options = {"node_timeout": 5.0, "connect_timeout": 20.0}
            async with AsyncFastRedlock(valkey.urls, **options) as a, a.lock("task"):
                await asyncio.create_task(other_task(a))

        asyncio.run(tasks())
        assert "waits-for-itself" not in caplog.text


@pytest.mark.parametrize("mode", [(), ("-X", "dev")], ids=["normal", "dev mode"])
def test_a_lock_that_is_dropped_while_it_is_held(valkey: Masters, mode: tuple[str, ...]) -> None:
    program = (
        "import sys; from redlock_fast import FastRedlock\n"
        "c = FastRedlock(sys.argv[1:], node_timeout=5, connect_timeout=20, restart_guard='off')\n"
        "with c.lock('ended'): pass\n"
        "kept = c.lock('kept', release_at_exit=False); kept.acquire(); del kept\n"
        "lock = c.acquire('dropped'); lock = None"
    )
    done = subprocess.run(
        [sys.executable, *mode, "-c", program, *valkey.urls],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    warned = [line for line in done.stderr.splitlines() if "ResourceWarning: <Lock" in line]
    assert len(warned) == (1 if mode else 0), done.stderr
    assert all("<Lock 'dropped': held for" in line for line in warned)


def test_exec_names_the_holder_it_waits_for(valkey: Masters, connected: MakeClient, tmp_path: Path) -> None:
    lock = connected(valkey, owner="the-holder").acquire("job", 60.0)
    assert lock
    command = Command(valkey).with_options(tmp_path)
    with running(command.start("exec", "-v", "--timeout", "-1", "job", *sh("true"))) as process:
        assert process.stderr is not None
        lines: list[str] = []

        def waits() -> bool:
            lines.append(process.stderr.readline() if process.stderr else "")
            return "waits for the lock 'job', which the-holder has" in lines[-1]

        eventually(waits, "it says so")
        assert lock.release()
        process.communicate()
        assert process.returncode == 0


def test_a_user_that_may_not_scan(valkey: Masters) -> None:
    for master in valkey:
        assert master.ask("ACL SETUSER limited on nopass ~* +@all -scan") == "+OK"
    try:
        urls = " ".join(f"redis://limited@127.0.0.1:{master.port}" for master in valkey)
        code, shown, _ = Command(valkey).run("locks", REDLOCK_FAST_MASTERS=urls)
        assert code
        assert "needs the user of an operator, as admin in deploy/valkey/users.acl" in shown
    finally:
        for master in valkey:
            master.ask("ACL DELUSER limited")


def test_logging_is_left_to_the_program() -> None:
    assert any(
        isinstance(handler, logging.NullHandler) for handler in logging.getLogger("redlock_fast").handlers
    )
