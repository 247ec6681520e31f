"""Which signals background threads block."""

from __future__ import annotations

import signal

from support.waiting import DEADLINE, start

from redlock_fast.engine.signals import block_signals


def test_a_background_thread_blocks_all_signals_but_crashes() -> None:
    """Real-time signals, too. Catches: a handler of the program that waits for a thread of the library."""

    def blocked() -> set[int]:
        block_signals()
        return {int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())}

    crashes = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    never = {signal.SIGKILL, signal.SIGSTOP}
    assert start(blocked).result(DEADLINE) == set(signal.valid_signals()) - crashes - never
