"""``redlock-fast exec``: real processes and masters, both engines where they matter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import redis
from support.commands import Command, alive, ends, first_line, running, sh
from support.keys import nothing_left, values, wipe, with_keys
from support.python_process import run_python
from support.waiting import DEADLINE, PATIENT, PROCESS_DEADLINE, eventually

from redlock_fast import FastRedlock
from redlock_fast.cli.exit_codes import UNAVAILABLE
from redlock_fast.embedded import Masters

Raw = Callable[[Masters], list[redis.Redis]]

#: Prints its process id, and goes on until a signal ends it; then it prints "ended".
OBEYS = "trap 'echo ended; exit 5' TERM INT HUP QUIT USR1 USR2; echo $$; while :; do sleep 0.1; done"
#: Goes on even then.
IGNORES = "trap 'echo heard' TERM; echo $$; while :; do sleep 0.1; done"
#: A lease that is over soon after it is not extended any more.
SHORT = ("--ttl", "3")
QUICK = ("--grace", "0.2")
#: A grace in which a busy machine runs the command; the lease outlasts it.
LONGER = ("--ttl", "6", "--grace", "2")


def answered(command: Command, *arguments: str) -> tuple[int, str, str]:
    """As ``command.run``, once its time was enough for a reply of the masters."""
    results: list[tuple[int, str, str]] = []

    def in_time() -> bool:
        results.append(command.run(*arguments))
        return results[-1][0] != UNAVAILABLE

    eventually(in_time, "the masters answer in its time", deadline=PROCESS_DEADLINE)
    return results[-1]


def holders(nodes: list[redis.Redis], key: str) -> int:
    return sum(value is not None for value in values(nodes, key))


# --- exit codes and arguments ---------------------------------------------------------------------


def test_it_runs_under_the_lock(command: Command, valkey: Masters, raw: Raw, tmp_path: Path) -> None:
    nodes, end = raw(valkey), tmp_path / "end"
    script = f"echo held; until [ -e {end} ]; do sleep 0.02; done; exit 7"
    with running(command.start("exec", "job", *sh(script))) as process:
        assert first_line(process) == "held"
        assert holders(nodes, "job") >= 3
        end.touch()
        assert process.wait(DEADLINE) == 7
    nothing_left(valkey)


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        (["sh", "-c", "exit 255"], 255, ""),
        (["sh", "-c", "kill -KILL $$"], 128 + 9, ""),
        (["no-such-command"], 127, "redlock-fast: no-such-command: No such file or directory\n"),
        (["/etc/passwd"], 126, "redlock-fast: /etc/passwd: Permission denied\n"),
    ],
)
def test_its_exit_code(once: Command, valkey: Masters, what: list[str], code: int, said: str) -> None:
    assert once.run("exec", "job", "--", *what) == (code, "", said)
    nothing_left(valkey)


@pytest.mark.parametrize("tool", ["exec", "lead"])
def test_a_parent_that_ignores_the_ends_of_its_children(once: Command, tool: str) -> None:
    """Its children inherit that, as some daemons have it. Then the kernel keeps no exit code."""
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.run(
        [sys.executable, "-c", ignore, sys.executable, "-m", "redlock_fast", tool, "job", *sh("exit 3")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=once.environment,
        timeout=PROCESS_DEADLINE,
    )
    assert (process.returncode, process.stdout, process.stderr) == (3, "", "")


def test_what_is_behind_the_dashes_is_the_commands(once: Command) -> None:
    script = 'echo "$#:$*"'
    assert once.run("exec", "job", *sh(script), "sh", "--", "--ttl", "--help") == (
        0,
        "3:-- --ttl --help\n",
        "",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["exec", "job"], "exec: error: no COMMAND: put it after --"),
        (["exec", "job", "--"], "exec: error: no COMMAND: put it after --"),
        (["exec", "--", "true"], "NAME"),
        (["exec", "job", "true"], "exec: error: no COMMAND: put it after --"),
        (["exec", "job", "more", "--", "true"], "exec: error: unknown arguments: more"),
        (["exec", "job", "--ttl", "x", "--", "true"], "--ttl"),
        (["exec", "job", "--timeout", "-2", "--", "true"], "--timeout"),
        (["exec", "job", "-E", "256", "--", "true"], "0 to 255"),
        (["exec", "", "--", "true"], "resource must have 1 to"),
        (["exec", "job", "--ttl", "61", "--", "true"], "at most max_ttl (60 s)"),
        (["exec", "job", "redis://me:secret@host", "--", "true"], "redis://***@host"),
        (["exec", "job", "--masters", "redis://me:secret@[host", "--", "true"], "is no URL of a master"),
    ],
)
def test_bad_usage(once: Command, arguments: list[str], said: str) -> None:
    code, out, err = once.run(*arguments)
    assert (code, out) == (64, "")
    assert said in err
    assert ("usage: redlock-fast exec NAME [options] -- COMMAND" in err) == ("usage:" in err)
    assert "secret" not in err
    assert "Traceback" not in err


def test_no_masters_are_configured() -> None:
    code, out, err = Command(None).run("exec", "job", "--", "true")
    assert (code, out) == (64, "")
    assert err.startswith("redlock-fast: no masters: give --masters URL,URL or set REDLOCK_FAST_MASTERS")


def test_too_few_masters(valkey: Masters, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        valkey[number].kill()
    once = Command(valkey).with_options(tmp_path, connect_timeout=0.2)
    code, _, err = once.run("exec", "job", "--", "touch", str(tmp_path / "ran"))
    assert code == 69
    assert "no quorum of 3 of 5 masters" in err
    assert not (tmp_path / "ran").exists()


def test_the_fencing_token(once: Command) -> None:
    show = sh("echo $REDLOCK_FAST_TOKEN")
    first, second = (once.run("exec", "job", "--fencing", *show)[1] for _ in range(2))
    assert 0 < int(first) < int(second)
    assert once.run("exec", "job", *show)[1] == "\n"


# --- contention -----------------------------------------------------------------------------------


def test_contention(command: Command, tmp_path: Path) -> None:
    with running(command.start("exec", "job", *sh(OBEYS))) as first:
        pid = int(first_line(first))
        ran = ["--", "touch", str(tmp_path / "ran")]
        assert command.run("exec", "job", *ran) == (1, "", "")
        assert answered(command, "exec", "job", "-E", "99", "--timeout", "1", *ran) == (99, "", "")
        assert not (tmp_path / "ran").exists()
        with running(command.start("exec", "job", "--timeout", "-1", "--", "echo", "mine")) as second:
            os.kill(pid, signal.SIGTERM)
            assert first_line(second) == "mine"
            assert second.wait(DEADLINE) == 0
        assert first.wait(DEADLINE) == 5


def test_verbose_says_why_it_did_not_run(command: Command, valkey: Masters, raw: Raw) -> None:
    for node in raw(valkey):
        node.set("job", "another client's", px=600_000)
    never = ["-v", "--", "no-such-command"]
    code, out, err = command.run("exec", "job", *never)
    why = "redlock-fast: no-such-command was not run: another client holds the lock job"
    assert (code, out) == (1, "")
    assert why in err.splitlines()
    code, _, err = answered(command, "exec", "job", "--timeout", "1", *never)
    assert code == 1
    assert f"{why}, after 1 s" in err.splitlines()
    with running(command.start("exec", "job", "--timeout", "-1", *never)) as process:
        assert process.stderr is not None
        while "master-connected" not in process.stderr.readline():
            assert process.poll() is None
        process.terminate()
        said = process.communicate(timeout=DEADLINE)[1].splitlines()
    assert "redlock-fast: no-such-command was not run: SIGTERM ended the wait for the lock" in said


def test_it_is_renewed_though_a_master_dies(command: Command, valkey: Masters, raw: Raw) -> None:
    with running(command.start("exec", "job", *SHORT, *sh(OBEYS))) as process:
        first_line(process)
        valkey[0].kill()
        node = next(node for node in raw(valkey)[1:] if node.get("job"))
        left = [node.pttl("job")]

        def extended() -> bool:
            left.append(node.pttl("job"))
            return left[-1] > left[-2]

        for _ in range(2):
            eventually(extended, "it is extended")
        assert process.poll() is None
        process.terminate()
        assert process.wait(DEADLINE) == 5


# --- signals --------------------------------------------------------------------------------------


#: Runs the command. The signal arrives when the lock is granted, before ``acquire`` returns to ``exec``.
GRANTED_AND_STOPPED = """
import os, signal, sys
from redlock_fast import cli
from redlock_fast.threads.lock import Lock

acquire = Lock.acquire

def stopped(self):
    assert acquire(self)
    os.kill(os.getpid(), signal.SIGTERM)

Lock.__enter__ = stopped
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_signal_with_the_grant_releases_the_lock(once: Command, valkey: Masters) -> None:
    done = run_python(
        [sys.executable, "-c", GRANTED_AND_STOPPED, "exec", "job", "--", "true"],
        env=once.environment,
        timeout=DEADLINE,
    )
    assert done.returncode == 128 + signal.SIGTERM
    nothing_left(valkey)


#: Runs the command. Its main thread blocks SIGTERM, so another thread gets it: as when the system is busy,
#: and a thread that connects a master unblocks signals before the main thread runs.
IN_ANOTHER_THREAD = """
import signal, sys, threading
from redlock_fast import cli

threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_signal_that_another_thread_gets_is_forwarded(once: Command) -> None:
    unblock = "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])"
    script = f"import signal; {unblock}; print(1, flush=True); signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-c", IN_ANOTHER_THREAD, "exec", "job", "--", sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=once.environment,
    )
    with running(process):
        assert first_line(process) == "1"
        process.terminate()
        assert process.wait(DEADLINE) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2],
)
def test_signals_are_forwarded(once: Command, valkey: Masters, number: int) -> None:
    """Catches: SIGUSR1 ends this process, the kernel kills the command, and the lock stays for its ttl."""
    with running(once.start("exec", "job", *sh(OBEYS))) as process:
        first_line(process)
        process.send_signal(number)
        assert process.communicate(timeout=DEADLINE)[0] == "ended\n"
        assert process.returncode == 5
    nothing_left(valkey)


@pytest.mark.parametrize("tool", ["exec", "lead"])
def test_a_command_that_is_stopped_hears_the_signal(once: Command, valkey: Masters, tool: str) -> None:
    """A read from the terminal stops a command in the background. Catches: it holds the lock for ever."""
    with running(once.start(tool, "job", *sh(OBEYS))) as process:
        pid = int(first_line(process))
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "it is stopped")
        process.terminate()
        assert process.communicate(timeout=DEADLINE)[0] == "ended\n"
        assert process.returncode == 5


def test_who_ignores_signals_keeps_the_lock(once: Command, valkey: Masters, raw: Raw) -> None:
    with running(once.start("exec", "job", *QUICK, *sh(IGNORES))) as process:
        pid = int(first_line(process))
        process.terminate()
        assert first_line(process) == "heard"
        assert process.poll() is None
        assert holders(raw(valkey), "job") >= 3
        os.kill(pid, signal.SIGKILL)
        assert process.wait(DEADLINE) == 128 + 9


def test_a_signal_ends_the_waiting(command: Command, valkey: Masters, raw: Raw, tmp_path: Path) -> None:
    nodes = raw(valkey)
    for node in nodes:
        node.set("job", "somebody else", px=600_000)
    waiting = ("exec", "job", "--timeout", "-1", "--verbose", "--", "touch", str(tmp_path / "ran"))
    with running(command.start(*waiting)) as process:
        assert process.stderr is not None
        while "master-connected" not in process.stderr.readline():
            assert process.poll() is None
        process.terminate()
        assert process.wait(DEADLINE) == 128 + 15
    assert values(nodes, "job") == [b"somebody else"] * 5
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("key", ["\x03", "\x1c"], ids=["Ctrl-C", "Ctrl-\\"])
def test_keys_of_a_terminal(once: Command, valkey: Masters, key: str) -> None:
    """They reach the command by themselves: it is in the foreground with us, and hears each key once."""
    script = "import os,pty,sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    arguments = [sys.executable, "-m", "redlock_fast", "exec", "job", *sh(OBEYS)]
    terminal = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=once.environment,
    )
    with running(terminal) as process:
        assert first_line(process).isdigit()
        out, _ = process.communicate(key, timeout=DEADLINE)
        assert process.returncode == 5
        assert "ended" in out
    nothing_left(valkey)


# --- losses ---------------------------------------------------------------------------------------


def test_a_lost_lock_ends_the_command(once: Command, valkey: Masters, raw: Raw) -> None:
    with running(once.start("exec", "job", *SHORT, *sh(OBEYS))) as process:
        first_line(process)
        for node in raw(valkey):
            wipe(node)
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (75, "ended\n")
        lost = "redlock-fast: lost the lock job: gone: a quorum of masters no longer has the key\n"
        assert err.startswith(lost)


def test_who_ignores_the_loss_is_killed(command: Command, valkey: Masters, raw: Raw) -> None:
    with running(command.start("exec", "job", *LONGER, *sh(IGNORES))) as process:
        pid = int(first_line(process))
        for node in raw(valkey):
            wipe(node)
        out, _ = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (75, "heard\n")
        assert not alive(pid)


def test_what_the_command_has_started_ends_with_it(once: Command, valkey: Masters, raw: Raw) -> None:
    script = f"sh -c '{IGNORES.replace(chr(39), chr(34))}' & wait"
    with running(once.start("exec", "job", *SHORT, *QUICK, *sh(script))) as process:
        pid = int(first_line(process))
        for node in raw(valkey):
            wipe(node)
        assert process.wait(DEADLINE) == 75
        ends(pid)


def test_masters_die(command: Command, valkey: Masters) -> None:
    """The lease ends, and with it the command: before any other client can have the lock."""
    with running(command.start("exec", "job", *SHORT, *sh(OBEYS))) as process:
        first_line(process)
        for number in (0, 2, 4):
            valkey[number].kill()
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (75, "ended\n")
        assert "unconfirmed: too few masters answered before the lease ended" in err


def test_a_loss_that_only_the_release_finds(once: Command, valkey: Masters, raw: Raw, tmp_path: Path) -> None:
    end = tmp_path / "end"
    with running(
        once.start("exec", "job", *sh(f"echo 1; until [ -e {end} ]; do sleep 0.02; done"))
    ) as process:
        first_line(process)
        for node in raw(valkey):
            wipe(node)
        end.touch()
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 75
        assert "lost the lock job: gone" in err


@pytest.mark.skipif(sys.platform != "linux", reason="the command outlives its parent elsewhere")
def test_the_parent_is_killed(command: Command, valkey: Masters) -> None:
    """The command dies with it, and the next one gets in when the lease has ended."""
    with running(command.start("exec", "job", *SHORT, *sh(IGNORES))) as process:
        pid = int(first_line(process))
        process.kill()
        process.wait()
        ends(pid)
        assert len(with_keys(valkey)) >= 3
    assert command.run("exec", "job", "--timeout", "60", "--", "echo", "mine") == (0, "mine\n", "")


def test_a_new_process_does_not_believe_masters_that_were_restarted(
    masters: Masters, connected: Callable[..., FastRedlock], engine_name: str, tmp_path: Path
) -> None:
    """Three of five forgot the lock. Catches: each process is new, so it has not seen them go away."""
    holder = connected(masters)
    lock = holder.acquire("job", ttl=30.0)
    assert lock
    for number in (0, 1, 2):
        masters[number].kill()
        masters[number].restart()
    command = Command(masters, engine_name).with_options(tmp_path, assume_fresh=False, **PATIENT)
    code, out, err = command.run("exec", "job", "--timeout", "0", *sh("echo ran"))
    assert (code, out) == (UNAVAILABLE, "")
    assert "it may have forgotten locks: no vote for" in err
    assert "if the masters start for the first time: assume_fresh" in err
    lock.check()
    lock.release()
    command = command.with_options(tmp_path, assume_fresh=True, **PATIENT)
    assert command.run("exec", "job", "--timeout", "0", *sh("echo ran"))[:2] == (0, "ran\n")
