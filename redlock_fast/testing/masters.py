"""Masters in the memory of this process, for tests without servers."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from ..algorithm.policy import lease_clock
from ..engine.clock import monotonic
from ..engine.contract import MAX_MASTERS
from ..errors import ConfigError
from ..locks.config import check_integer, number
from .lua import find_lua
from .server import MasterTime, Server, encode

#: Paths of unix sockets are limited to some 104 bytes.
MAX_FOLDER = 80
#: Seconds for the thread to do what a method asks for.
TIMEOUT = 20.0


class MemoryMaster:
    """One master of [`MemoryMasters`][]. Each method returns when its effect is there."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    @property
    def url(self) -> str:
        """The URL for a client, by a unix socket."""
        return f"unix://{self._server.path}"

    def stop(self) -> None:
        """Become unreachable: connections are closed and new ones refused. The keys stay.

        Examples:
            >>> masters[0].stop()
        """
        self._run(self._server.stop)

    def start(self) -> None:
        """Become reachable again, after [`stop`][]. It is the same process, with its keys."""
        self._run(self._server.start)

    def slow(self, seconds: float) -> None:
        """Execute each request so many seconds after it arrived, in the order of arrival; 0.0: at once.

        A master that is slow for an hour hangs, as far as a test can see; ``slow(0)`` then executes what
        arrived in the meantime.

        Raises:
            ConfigError: ``seconds`` is negative or no number.
        """
        self._run(self._slow, number("seconds", seconds, high=86_400.0))

    def restart_empty(self) -> None:
        """Become another process without keys, as after a crash: all connections are closed.

        Clients that knew it give it no vote for ``max_ttl``, because it has forgotten locks.
        """
        self._run(self._restart_empty)

    def ask(self, line: str) -> str:
        """Execute one command, also on a master that is stopped or slow; returns the first line of its reply.

        Examples:
            >>> masters[0].ask("EXISTS orders:42")
            ':1'
        """
        reply: str = self._run(self._ask, line)
        return reply

    async def _slow(self, seconds: float) -> None:
        self._server.delay = seconds
        self._server.resume()

    async def _restart_empty(self) -> None:
        await self._server.stop()
        self._server.forget()
        await self._server.start()

    async def _ask(self, line: str) -> str:
        words = [word.encode() for word in shlex.split(line)]
        return encode(self._server.reply(words), False).decode(errors="replace").split("\r\n")[0]

    def _run(self, action: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        """What ``action`` returns, which the thread runs."""
        if self._loop.is_closed():
            raise ConfigError("these masters are closed")
        return asyncio.run_coroutine_threadsafe(action(*args), self._loop).result(TIMEOUT)


class MemoryMasters:
    """``n`` masters in this process, which a test can stop, slow down and empty, and whose time it can move.

    Clients reach them by unix sockets, with the engine and the connections that they always have. A thread
    executes their commands and the Lua scripts of the locks: no server and no network is needed, but lupa
    (``pip install 'redlock-fast[testing]'``). A sequence of [`MemoryMaster`][], and a context manager. Child
    processes may connect to them, too; the methods are for the process that made them.

    Args:
        n: The number of masters.
        clock: What the time of the masters follows: a function that returns seconds. A function that always
            returns the same number stops the time, so that only [`advance`][] moves it.

    Raises:
        ConfigError: ``n`` is out of range, or lupa is not installed.

    Examples:
        >>> with MemoryMasters(3) as masters, FastRedlock(masters.urls, clock=masters.clock) as client:
        ...     masters[0].stop()
        ...     lock = client.acquire("orders:42", ttl=10)
        ...     masters.advance(10)
        ...     assert not lock.locked()
    """

    def __init__(self, n: int = 3, *, clock: Callable[[], float] = lease_clock) -> None:
        check_integer("n", n, 1, MAX_MASTERS)
        if not callable(clock):
            raise ConfigError(f"clock must be a function that returns seconds, not {clock!r}")
        find_lua()  # raises before there is anything to clean up
        self._time = MasterTime(clock)
        folder, loop = _new_folder(), _Loop()
        servers = [Server(str(folder / str(place)), self._time.since_1970) for place in range(n)]
        thread = threading.Thread(
            target=_serve, args=(loop, servers, folder), name="redlock-fast-memory", daemon=True
        )
        self._masters = [MemoryMaster(server, loop) for server in servers]
        self._end = weakref.finalize(self, _end, loop, thread, os.getpid())
        thread.start()
        for master in self._masters:
            master.start()

    @property
    def urls(self) -> list[str]:
        """The URLs for a client, in the order of the masters."""
        return [master.url for master in self._masters]

    def clock(self) -> float:
        """The time of the masters in seconds: the option ``clock`` of clients whose leases follow it, too."""
        return self._time()

    def advance(self, seconds: float) -> None:
        """Move the time of all masters forward: keys whose ttl ends are gone when this returns.

        Raises:
            ConfigError: ``seconds`` is negative or no number.
        """
        self._time.ahead += number("seconds", seconds)
        for master in self._masters:
            master.ask("DBSIZE")

    def close(self) -> None:
        """Close all connections and end. Later calls do nothing. Never raises."""
        self._end()

    def __len__(self) -> int:
        return len(self._masters)

    def __getitem__(self, index: int) -> MemoryMaster:
        return self._masters[index]

    def __iter__(self) -> Iterator[MemoryMaster]:
        return iter(self._masters)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose time goes on where a test has stopped ``time.monotonic``, as freezegun does."""

    def time(self) -> float:
        return monotonic()


def _serve(loop: asyncio.AbstractEventLoop, servers: Sequence[Server], folder: Path) -> None:
    """Run ``servers`` until the loop is stopped."""
    try:
        loop.run_forever()
        for server in servers:
            loop.run_until_complete(server.stop())
        loop.run_until_complete(asyncio.sleep(0))  # the connections close in the next turn
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    """Stop the thread. It may be this one, where the garbage collection finds masters that were dropped."""
    if os.getpid() != pid:  # a child of fork has no such thread, and its exit must not end the masters
        return
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join(TIMEOUT)


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="redlock-fast-"))
    if len(os.fsencode(folder)) > MAX_FOLDER:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="redlock-fast-", dir="/tmp"))
    return folder
