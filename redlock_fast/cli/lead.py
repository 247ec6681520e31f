"""``redlock-fast lead``: run a command while this process leads; campaign again after a loss.

docs/cli.md says how the command is ended.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading

from ..errors import ConfigError
from ..locks.config import number
from ..locks.leader import STOPPED
from ..threads.client import FastRedlock
from ..threads.leader import Leader
from ..wire.text import clean
from . import exit_codes
from .child_process import ChildProcess
from .execute import DEFAULTS, PATIENCE, TOKEN, forward, log, report_failure, report_stop
from .output import print_error
from .settings import Settings, load
from .signals import ENDS, Signals, Stopped

#: ``--grace`` by default, and the largest, as shares of the ttl.
GRACE_SHARE, LONGEST_GRACE_SHARE = 0.25, 0.45
#: The share of the ttl between SIGKILL and the first moment at which another candidate can be elected.
MARGIN_SHARE = 0.05


def run(options: argparse.Namespace) -> int:
    """Run the command whenever this process leads. Returns its exit code when it ends by itself."""
    settings = load(options)
    log(options.verbose)
    try:  # Signals may raise at its entry and exit, too
        code = _lead_once(options, settings)
    except Stopped as stopped:
        return report_stop(options, stopped, "campaign")
    if code is None:
        # The next command must be forked by a process with a single thread, as this one was when it began.
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)
    return code


def _lead_once(options: argparse.Namespace, settings: Settings) -> int | None:
    """Wait for the leadership, and run the command. None: the leadership was lost, and the command ended."""
    arguments = settings.client(**DEFAULTS)
    ttl = number("ttl", arguments["ttl"], above=0.0)
    grace = ttl * GRACE_SHARE if options.grace is None else options.grace
    if grace > ttl * LONGEST_GRACE_SHARE:
        raise ConfigError(
            f"--grace must be at most {ttl * LONGEST_GRACE_SHARE:g} s with a ttl of {ttl:g} s, "
            f"not {grace:g} s: COMMAND must end before another candidate can be elected"
        )
    terminal, name = os.isatty(0), os.fsencode(options.name)
    lost, ended = threading.Event(), threading.Event()
    received: list[int] = []  # signals that ask for the end: no other campaign follows
    with (
        ChildProcess(options.argv, alone=not terminal, grace=grace) as child,
        Signals(unstoppable=not terminal) as signals,
    ):

        def deliver(number: int) -> None:
            if number in ENDS:
                received.append(number)
            forward(number, child, terminal)

        def on_lost(_: Leader, reason: str) -> None:
            if reason != STOPPED:
                lost.set()
                print_error(f"lost the leadership {clean(name)}: {reason}")
                child.end()
                ended.set()

        notice = grace + ttl * MARGIN_SHARE
        with (
            FastRedlock(**arguments) as client,
            client.leader(name, on_lost=on_lost, notice=notice) as leader,
        ):
            leader.wait()
            signals.deliver = deliver
            if options.verbose:
                print_error(f"elected: leads {clean(name)}")
            failure = child.start({TOKEN: str(leader.fencing_token)})
            code = child.wait()
        if lost.is_set():
            ended.wait(grace + PATIENCE)
            return exit_codes.SIGNALLED + received[-1] if received else None
        return code if failure is None else report_failure(options.argv[0], failure)
