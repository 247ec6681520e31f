"""A process whose holders want the locks of many resources while its list of masters changes.

``python -m chaos.change_worker '<settings as JSON>'``. It says "ready" when it is connected, or "refused" if
its list of masters is. Then each line on stdin is a list to change to, and it says "changed". An empty line
ends it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

from chaos.counters import counter
from chaos.history import HistoryWriter, clock
from chaos.worker import AFTER_OUTAGE, KINDS, LONGEST, Do, Tasks, say

from redlock_fast import ConfigError, LockLost, QuorumUnavailable

#: Seconds that one acquire tries.
PATIENCE = 2.0


class Holder:
    """Acquires one resource after another, and adds to its counter."""

    def __init__(self, number: int, setting: dict[str, Any], kind: Any, history: HistoryWriter) -> None:
        self._chance = random.Random(f"{setting['seed']} {setting['name']} {number}")
        self._client = kind.client
        self._do: Do = kind.do
        self._sleep = kind.sleep
        self._hold = setting["hold"]
        self._counters = setting["counters"]
        self._number = number
        self._history = history

    async def run(self, stopped: Callable[[], bool]) -> None:
        while not stopped():
            place = self._chance.randrange(len(self._counters))
            lock = self._client.lock(
                f"resource:{place}", fencing=True, auto_extend=self._chance.random() < 0.3
            )
            if await self._acquired(lock, place):
                await self._work(lock, counter(self._counters[place], False))
                self._write("letting go")
                self._write("released", alive=await self._do(lock.release))

    async def _acquired(self, lock: Any, place: int) -> bool:
        start = clock()
        try:
            if await self._do(lock.acquire, True, PATIENCE):
                stated = _stated(lock)
                marks = {"token": lock.token.hex(), "fence": lock.fencing_token, "resource": place}
                self._write("grant", **stated, **marks, skew=0.0)
                return True
            unavailable = False
        except QuorumUnavailable:
            unavailable = True
        self._write("refused", unavailable=unavailable, overtime=clock() - start - PATIENCE)
        if unavailable:
            await self._sleep(AFTER_OUTAGE)
        return False

    async def _work(self, lock: Any, number: Any) -> None:
        """Read, wait, write: what another holder writes in between is lost."""
        value = number.read()
        linger = self._chance.uniform(*self._hold)
        await self._sleep(linger / 2)
        if self._chance.random() < 0.2:
            with contextlib.suppress(LockLost, QuorumUnavailable):
                await self._do(lock.extend)
            self._write("extend", **_stated(lock))
        await self._sleep(linger / 2)
        if lock.remaining() > 0.0:
            self._write("extend", **_stated(lock))  # what a renewal has added
            self._write("write", accepted=number.write(value + 1, None))

    def _write(self, what: str, **more: Any) -> None:
        self._history.write(what, self._number, clock(), **more)


def _stated(lock: Any) -> dict[str, float]:
    """The deadline, never later than the lock's own; 0.0 if it is over."""
    now = clock()
    left = lock.remaining()
    return {"deadline": now + left if left else 0.0}


def change(kind: Any, masters: list[str], joint_with: list[str] | None) -> None:
    done = kind.client.reconfigure(masters, joint_with=joint_with, timeout=LONGEST)
    if isinstance(kind, Tasks):
        kind.in_loop(done).result()


def work(setting: dict[str, Any], history: HistoryWriter) -> None:
    kind = KINDS[setting["mode"]](setting)
    try:
        assert kind.connect(), "the masters do not answer"
    except ConfigError as error:
        say(f"refused: {error}")
        kind.end()
        return
    say("ready")
    stopped = threading.Event()
    holders = [Holder(number, setting, kind, history) for number in range(setting["holders"])]
    kind.start([lambda holder=holder: holder.run(stopped.is_set) for holder in holders])
    for line in sys.stdin:
        if not line.strip():
            break
        try:
            change(kind, **json.loads(line))
            say("changed")
        except (ConfigError, QuorumUnavailable) as error:
            say(f"not changed: {error}")
    stopped.set()
    kind.end()
    say("ended")


def main() -> None:
    setting = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    work(setting, HistoryWriter(setting["journal"]))


if __name__ == "__main__":
    main()
