"""``redlock-fast exec``: flock(1) over N masters.

This process holds the lock, the command runs in a child. docs/cli.md says how the command is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import threading
from typing import Any

from ..algorithm.operation import Procedure
from ..algorithm.procedures import owners
from ..errors import QuorumUnavailable
from ..threads.client import FastRedlock
from ..threads.lock import Lock
from ..threads.operations import run as run_operation
from ..threads.single_run import enter_unless_held
from ..wire.text import clean, quoted
from . import exit_codes
from .child_process import ChildProcess
from .output import print_error
from .settings import Settings, load
from .signals import Signals, Stopped

#: Options of the client. Seconds, longer than its defaults: a slow master shall not fail a cron job.
#: "strict": this process meets each master for the first time, so only the master's uptime tells whether it
#: was restarted.
DEFAULTS: dict[str, Any] = {
    "ttl": 30.0,
    "node_timeout": 1.0,
    "connect_timeout": 3.0,
    "restart_guard": "strict",
}
#: Seconds for the thread that ends the processes of the command, beyond ``--grace``.
PATIENCE = 5.0
TOKEN = "REDLOCK_FAST_TOKEN"
#: The signals of Ctrl-C and Ctrl-\ in a terminal.
OF_KEYS = (signal.SIGINT, signal.SIGQUIT)


def run(options: argparse.Namespace) -> int:
    """Run the command under the lock. Returns its exit code, or the code of the reason why it has none."""
    settings = load(options)
    log(options.verbose)
    terminal = os.isatty(0)
    try:  # Signals may raise at its entry and exit, too
        with (
            ChildProcess(options.argv, alone=not terminal, grace=options.grace) as child,
            Signals(unstoppable=not terminal) as signals,
        ):
            return _under_lock(options, settings, child, signals, terminal)
    except Stopped as stopped:
        return report_stop(options, stopped, "wait for the lock")


def _under_lock(
    options: argparse.Namespace, settings: Settings, child: ChildProcess, signals: Signals, terminal: bool
) -> int:
    name = os.fsencode(options.name)
    lost, ended = threading.Event(), threading.Event()

    def on_lost(lock: Lock, reason: str) -> None:
        lost.set()
        print_error(f"lost the lock {clean(name)}: {reason}")
        child.end()
        ended.set()

    with FastRedlock(**settings.client(**DEFAULTS)) as client:
        lock = client.lock(
            name,
            timeout=options.timeout,
            fencing=options.fencing,
            auto_extend=True,
            max_hold=None,
            on_lost=on_lost,
        )
        try:  # a signal may arrive before acquire() has returned
            if not _acquired(options, lock):
                waited = f", after {options.timeout:g} s" * (options.timeout > 0)
                say_not_run(options, f"another client holds the lock {clean(name)}{waited}")
                return int(options.conflict_exit_code)
            signals.deliver = lambda number: forward(number, child, terminal)
            failure = child.start({TOKEN: str(lock.fencing_token)} if options.fencing else {})
            code = child.wait()
        finally:
            kept = lock.release()
        if lost.is_set() or not kept:
            ended.wait(options.grace + PATIENCE)
            return exit_codes.LOST
        return code if failure is None else report_failure(options.argv[0], failure)


def _acquired(options: argparse.Namespace, lock: Lock) -> bool:
    """Acquire ``lock``. With --verbose, say first which holder that waits for."""
    if not options.timeout:
        # Without a wait it gives up only if another client holds the lock: split votes show none.
        return not enter_unless_held(lock)
    if options.verbose:
        with contextlib.suppress(QuorumUnavailable):  # the next attempt has more time
            if lock.acquire(blocking=False):
                return True
            core = lock._core
            owner = run_operation(Procedure(owners(core.policy, [lock.key])), core.masters)[0]
            print_error(f"waits for the lock {quoted(lock.resource)}, which {owner or 'another client'} has")
    return lock.acquire()


def forward(number: int, child: ChildProcess, terminal: bool) -> None:
    """Forward a signal, except one of a terminal's keys: the command is in this group and has it already."""
    if not (terminal and number in OF_KEYS):
        child.send(number)


def report_failure(command: str, failure: OSError) -> int:
    """Print why ``command`` could not be executed. Returns the exit code."""
    print_error(f"{command}: {failure.strerror}")
    return exit_codes.NOT_FOUND if isinstance(failure, FileNotFoundError) else exit_codes.NOT_EXECUTABLE


def report_stop(options: argparse.Namespace, stopped: Stopped, ended: str) -> int:
    """Print which signal ended the wait or the campaign. Returns the exit code."""
    say_not_run(options, f"{signal.Signals(stopped.number).name} ended the {ended}")
    return exit_codes.SIGNALLED + stopped.number


def say_not_run(options: argparse.Namespace, reason: str) -> None:
    """With --verbose only: on all machines but one, cron would mail it. Other reasons are always printed."""
    if options.verbose:
        print_error(f"{clean(os.fsencode(options.argv[0]))} was not run: {reason}")


def log(verbose: bool) -> None:
    """Without ``verbose`` log nothing: cron would mail the failure of a minority of masters."""
    if verbose:
        logging.basicConfig(format="redlock-fast: %(message)s")
        logging.getLogger("redlock_fast").setLevel(logging.INFO)
