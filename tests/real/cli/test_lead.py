"""``redlock-fast lead``: real processes and masters."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from support.commands import Command, alive, ends, first_line, running, sh
from support.keys import wipe
from support.proxy import Proxy
from support.waiting import DEADLINE, eventually

from redlock_fast.embedded import Masters

#: Prints its process id and its fencing token, and goes on until a signal ends it.
OBEYS = "trap 'echo ended; exit 5' TERM INT; echo $$ $REDLOCK_FAST_TOKEN; while :; do sleep 0.1; done"
IGNORES = "trap '' TERM; echo $$ $REDLOCK_FAST_TOKEN; while :; do sleep 0.1; done"
SHORT = ("--ttl", "3", "--grace", "0.3")
#: SIGKILL comes 0.15 s before another can be elected. A busy machine may run the process later, once.
ATTEMPTS = 3


@pytest.fixture
def proxies(valkey: Masters) -> Iterator[list[Proxy]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Proxy(master.port)) for master in valkey]


def said(line: str) -> tuple[int, int]:
    """The process and the fencing token of a command."""
    pid, fence = line.split()
    return int(pid), int(fence)


def test_one_leads_and_another_follows(once: Command) -> None:
    """The command of the second runs when that of the first has ended, which is the exit code."""
    with running(once.start("lead", "chair", *sh(OBEYS))) as first:
        pid, fence = said(first_line(first))
        with running(once.start("lead", "chair", "-v", *sh("echo $REDLOCK_FAST_TOKEN; exit 7"))) as second:
            os.kill(pid, signal.SIGTERM)
            assert first_line(first) == "ended"
            assert first.wait(DEADLINE) == 5
            assert int(first_line(second)) > fence
            assert second.wait(DEADLINE) == 7


def test_a_loss_ends_the_command_and_it_campaigns_again(
    command: Command, proxies: list[Proxy], tmp_path: Path
) -> None:
    """Cut off from the masters: the command is killed before that of another begins."""
    cut_off = {"REDLOCK_FAST_MASTERS": " ".join(proxy.url for proxy in proxies)}
    with running(command.start("lead", "chair", *SHORT, *sh(IGNORES), **cut_off)) as first:
        pid, fence = said(first_line(first))
        found: list[str] = []
        while "gone" not in found:
            assert len(found) < ATTEMPTS, found
            free = f"kill -0 {pid} 2>/dev/null && echo alive || echo gone; exec sleep 60"
            with running(command.start("lead", "chair", *SHORT, *sh(free))) as second:
                for proxy in proxies:
                    proxy.hold(replies=False)
                found.append(first_line(second))
                ends(pid)
                for proxy in proxies:
                    proxy.deliver()
                second.terminate()
                assert second.wait(DEADLINE) == 128 + signal.SIGTERM
            before, (pid, later) = pid, said(first_line(first))
            assert pid != before
            assert later > fence
            fence = later
        os.kill(pid, signal.SIGKILL)
        assert first.wait(DEADLINE) == 128 + signal.SIGKILL
        assert first.stderr
        lost = (
            "redlock-fast: lost the leadership chair: "
            "unconfirmed: too few masters answered before the lease ended\n"
        )
        assert first.stderr.read() == lost * len(found)


def test_a_signal_that_the_command_survives_does_not_end_the_campaign(
    command: Command, valkey: Masters, raw: Callable[[Masters], list[redis.Redis]]
) -> None:
    """Daemons reload with SIGHUP. Catches: after it, a loss of hours later ends ``lead`` with 129."""
    reloads = "trap 'echo heard' HUP USR1; trap 'exit 5' TERM; echo $$; while :; do sleep 0.1; done"
    with running(command.start("lead", "chair", *SHORT, *sh(reloads))) as process:
        before = first_line(process)
        for number in (signal.SIGHUP, signal.SIGUSR1):
            process.send_signal(number)
            assert first_line(process) == "heard"
        for node in raw(valkey):
            wipe(node)
        assert first_line(process) not in ("", before)
        process.terminate()
        assert process.wait(DEADLINE) == 5


def test_signals(once: Command) -> None:
    """They end the campaign, and then the command."""
    with running(once.start("lead", "chair", *sh(OBEYS))) as first:
        pid, _ = said(first_line(first))
        with running(once.start("lead", "chair", "-v", "--", "echo", "no")) as waiting:
            assert waiting.stderr
            line = ""
            while "master-connected" not in line:
                line = waiting.stderr.readline()
            waiting.terminate()
            out, err = waiting.communicate(timeout=DEADLINE)
            assert (waiting.returncode, out) == (128 + signal.SIGTERM, "")
            assert "echo was not run: SIGTERM ended the campaign" in err
        first.send_signal(signal.SIGTERM)
        assert first_line(first) == "ended"
        assert first.wait(DEADLINE) == 5
        assert not alive(pid)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["chair"], 64, "lead: error: no COMMAND: put it after --"),
        (["chair", "--ttl", "3", "--grace", "2", "--", "true"], 64, "--grace must be at most 1.35 s"),
        (["", "--", "true"], 64, "resource must have 1 to"),
        (["chair", "--", "no-such-command"], 127, "no-such-command: No such file or directory"),
    ],
)
def test_what_does_not_run(valkey: Masters, arguments: list[str], code: int, text: str) -> None:
    found, out, err = Command(valkey).run("lead", *arguments)
    assert (found, out) == (code, "")
    assert text in err


def test_a_killed_leader_takes_its_command_along(once: Command) -> None:
    with running(once.start("lead", "chair", *SHORT, *sh(OBEYS))) as first:
        pid, fence = said(first_line(first))
        with running(once.start("lead", "chair", *SHORT, *sh("echo $REDLOCK_FAST_TOKEN"))) as second:
            first.kill()
            assert int(first_line(second)) > fence
            eventually(lambda: not alive(pid), "the command ended")
            assert second.wait(DEADLINE) == 0
