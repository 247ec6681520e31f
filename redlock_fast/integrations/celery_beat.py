"""Celery beat: of several beats only the leader sends tasks.

    from celery.beat import PersistentScheduler
    from redlock_fast.integrations.celery_beat import OneActive

    class Beat(OneActive, PersistentScheduler):
        client = FastRedlock(urls)

    app.conf.beat_scheduler = Beat

See docs/recipes/celery.md.
"""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

from ..algorithm.quorum import EXPIRY_GRANULARITY
from ..errors import ConfigError, LockLost, QuorumUnavailable
from ..locks.config import number
from ..locks.rwlock import ReadWriteLock
from ..sharded.clients import ShardedRedlock
from ..threads.client import FastRedlock
from ..threads.leader import Leader
from ..threads.lock import Lock
from .jobs import check_client

#: Seconds after which a beat that is not the leader looks again whether it is.
STANDBY = 1.0
#: Leases for which a standby keeps what it did not send. The leader may die before it sends the same, and
#: the next leader is elected a lease later.
WITHHELD = 2
#: Leases for which a send is marked. More than WITHHELD: machines disagree on when an entry is due.
MARKED = 4


class OneActive:
    """Mixin for a scheduler of beat: of all beats only the leader sends tasks.

    Start as many beats as you want, each with its own schedule file. Each beat follows the schedule, and a
    beat that is not the leader sends nothing. After its election a beat sends the tasks that came due while
    there was no leader. Each send leaves a lock on the masters for four leases, by which the next leader
    knows that the task was sent.

    Attributes:
        client: The client for threads. A subclass sets it, and has this class before all other bases.
        leader_name: The name of the leadership, the same for all beats of one schedule.
        lease: Seconds after which another beat is elected, if the leader dies. The client's ``max_ttl`` is
            at least four times as long.

    Examples:
        >>> class Beat(OneActive, PersistentScheduler):
        ...     client = FastRedlock(urls)
        >>> app.conf.beat_scheduler = Beat
    """

    client: ClassVar[FastRedlock | ShardedRedlock]
    leader_name: ClassVar[str] = "celery-beat"
    lease: ClassVar[float] = 10.0
    _leader: Leader | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for one in cls.__mro__[: cls.__mro__.index(OneActive)]:
            if not issubclass(one, OneActive) and not vars(one).keys().isdisjoint(("tick", "apply_entry")):
                why = "else its methods run in place of those of OneActive"
                raise ConfigError(f"{cls.__name__}: write OneActive before {one.__name__}, {why}")

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send an entry that is due. Returns the seconds until the next call.

        Raises:
            ConfigError: An invalid client, name or lease, or masters that cannot form a quorum.
        """
        if self._leader is None:
            #: The entries that were due, by name, and since when another beat may have sent them.
            self._withheld: dict[str, tuple[Any, float]] = {}
            self._marks: dict[str, Lock] = {}
            check_client(getattr(self, "client", None), "threads")
            core = self.client.lock(self.leader_name)._core
            lease = number("lease", self.lease, above=EXPIRY_GRANULARITY, high=core.max_ttl / MARKED)
            self._leader = self.client.leader(self.leader_name, ttl=lease)
            self._leader.start()
        leads = self._leader.wait(0)
        self._forget_what_was_sent()
        if leads:
            withheld, self._withheld = self._withheld, {}
            for entry, _ in withheld.values():
                self._send(entry, self.producer, again=False)  # type: ignore[attr-defined]
        pause: float = super().tick(*args, **kwargs)  # type: ignore[misc]
        return pause if leads else min(pause, STANDBY)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the task of an entry if this beat leads."""
        self._send(entry, producer, again=True)

    def close(self) -> None:
        """Close the schedule, and step down."""
        super().close()  # type: ignore[misc]
        if self._leader is not None:
            # Beat calls this in a signal handler, too. The code that it interrupted may hold a mutex that
            # stop() waits for. After its lease the leadership has ended anyhow.
            stopping = threading.Thread(target=self._leader.stop, daemon=True)
            stopping.start()
            stopping.join(self.lease)

    def _send(self, entry: Any, producer: Any, again: bool) -> None:
        """Send the task if this beat leads.

        ``again``: also if a mark exists: the mark is then that of an earlier run of the same entry.
        """
        assert self._leader is not None
        if self._leader.is_leader:
            unmarked = self._mark(entry.name, again)
            if self._leader.is_leader:  # still: the mark took time
                if unmarked or again:
                    super().apply_entry(entry, producer=producer)  # type: ignore[misc]
                return
            self._marks[entry.name].release()
        self._withheld[entry.name] = entry, time.monotonic()

    def _forget_what_was_sent(self) -> None:
        """Forget the entries that another beat, which led for long enough, has sent."""
        now, keep = time.monotonic(), WITHHELD * self.lease
        if self._withheld and self._led():
            self._withheld = {name: held for name, held in self._withheld.items() if now - held[1] < keep}
        else:
            self._withheld = {name: (entry, now) for name, (entry, _) in self._withheld.items()}

    def _led(self) -> bool:
        try:
            return self.client.locked(self.leader_name)
        except QuorumUnavailable:
            return False

    def _mark(self, name: str, again: bool) -> bool:
        """Mark a send. Returns whether no other beat has marked one; ``again``: that is not looked for.

        Each beat has a mark of its own, a read lock, also while that of an earlier leader lasts. Only a write
        lock finds out whether there is another mark. It becomes a mark then.
        """
        if name in self._marks:
            self._marks[name].release()
        marks = self._marks_of(name)
        mark = self._marks[name] = marks.read() if again else marks.write()
        try:
            unmarked = mark.acquire(blocking=False)
            if unmarked and not again:
                mark.downgrade()
            return unmarked
        except (QuorumUnavailable, LockLost):
            return True  # the task may be sent twice then, and is not left out

    def _marks_of(self, name: str) -> ReadWriteLock[Lock]:
        return self.client.rwlock(
            f"{self.leader_name}:{name}", MARKED * self.lease, auto_extend=False, release_at_exit=False
        )
