"""Masters for fault tests: real servers, each behind a proxy, that a test can kill, stop and partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from ...embedded import Master, Masters
from ...errors import ConfigError, MasterError
from ...locks.config import check_integer
from ...locks.config import number as check_number
from ...masters.probe import WITNESS
from ...wire.dialect import MARKER
from .proxy import Proxy

#: Deletes all keys of all databases but those by which clients see that a master was flushed. Without them
#: clients that outlive a test would distrust all masters for ``max_ttl``.
CLEAR = (
    "for db=0,15 do redis.call('select',db) for _,key in ipairs(redis.call('keys','*')) do "
    f"if key:sub(-{len(MARKER)})~='{MARKER.decode()}' and key:sub(-{len(WITNESS)})~='{WITNESS.decode()}' "
    "then redis.call('del',key) end end end return 1"
)


class FaultyMasters:
    """``n`` real masters on this machine, each behind a TCP proxy. A context manager.

    A sequence of [`Master`][redlock_fast.embedded.Master]: its ``ask`` and ``unix_url`` bypass the proxy, so
    that a test can look at a master that its clients cannot reach. Masters have the numbers 0 to ``n`` - 1.

    Args:
        n: The number of masters.
        server: "auto", "valkey", "redis" or the path of a server binary.

    Raises:
        ConfigError: There is no such server, or ``n`` is out of range. Methods raise it for a number
            without a master, and outside of ``with``.
        MasterError: A master does not start.

    Examples:
        >>> with FaultyMasters(5) as masters, FastRedlock(masters.urls) as client:
        ...     masters.kill(0)
        ...     masters.partition(1)
        ...     assert client.acquire("orders:42")
    """

    def __init__(self, n: int = 5, *, server: str = "auto") -> None:
        self._masters = Masters(n, server=server)
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Self:
        self._masters.start()
        self._proxies = [Proxy(master.port) for master in self._masters]
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._proxies:
            proxy.close()
        self._proxies = []
        self._masters.stop()

    def __len__(self) -> int:
        return len(self._masters)

    def __getitem__(self, number: int) -> Master:
        return self._masters[number]

    def __iter__(self) -> Iterator[Master]:
        return iter(self._masters)

    @property
    def urls(self) -> list[str]:
        """The URLs for a client, in the order of the masters. They lead through the proxies."""
        return [
            master.url.replace(f"127.0.0.1:{master.port}", f"127.0.0.1:{proxy.port}")
            for master, proxy in zip(self._masters, self._proxies, strict=True)
        ]

    def kill(self, number: int) -> None:
        """Kill a master (SIGKILL), as a crash would: its memory is lost."""
        self._masters[self._checked(number)].kill()

    def restart(self, number: int) -> None:
        """Start a master again, without data; one that runs is killed first. Waits until it answers.

        Clients that knew it give it no vote for ``max_ttl``, because it may have forgotten locks.

        Raises:
            MasterError: It does not start.
        """
        self._masters[self._checked(number)].restart()

    def stop(self, number: int) -> None:
        """Stop a master's process (SIGSTOP): connections stay open, and no reply comes."""
        self._masters[self._checked(number)].pause()

    def cont(self, number: int) -> None:
        """Continue a stopped process (SIGCONT). It executes what arrived since."""
        self._masters[self._checked(number)].resume()

    def partition(self, number: int, *, requests: bool = True, replies: bool = True) -> None:
        """Deliver nothing between clients and a master, until ``heal()``: the master itself runs.

        ``requests=False`` holds back only the replies: the master executes what clients send, and they do
        not learn of it. ``replies=False`` holds back only the requests.
        """
        self._proxies[self._checked(number)].hold(requests=requests, replies=replies)

    def delay(self, number: int, seconds: float) -> None:
        """Deliver each request and each reply of a master so many seconds later."""
        delay = check_number("seconds", seconds, low=0.0, high=3600.0)
        self._proxies[self._checked(number)].delay = lambda: delay

    def heal(self) -> None:
        """End all partitions and delays. What was held is delivered, late and in its order, as TCP does."""
        for proxy in self._proxies:
            proxy.delay = float
            proxy.deliver()

    def clear(self) -> None:
        """End all faults and delete all keys, as the plugin does after each test.

        All connections are closed first: no request of earlier clients arrives later.

        Raises:
            MasterError: A master does not start, or does not answer.
        """
        for proxy in self._proxies:
            proxy.cut()
        self.heal()
        for master in self._masters:
            master.resume()
            if master.pid is None:
                master.restart()
            # Its unread requests would be executed after the keys are deleted.
            master.ask("CLIENT KILL TYPE normal")
            reply = master.ask(f'EVAL "{CLEAR}" 0')
            if reply != ":1":
                raise MasterError(f"127.0.0.1:{master.port}", f"its keys cannot be deleted: {reply}")

    def _checked(self, number: int) -> int:
        if not self._proxies:
            raise ConfigError("the masters are not started")
        return check_integer("number", number, 0, len(self) - 1)
