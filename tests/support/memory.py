"""Masters in memory under the names that real masters have, so that the same tests run with both."""

from __future__ import annotations

from collections.abc import Iterator

from redlock_fast.testing import MemoryMaster, MemoryMasters

#: Seconds: a master that is this slow hangs.
HANGS = 3600.0


class AsReal:
    """A master in memory, to be used as ``embedded.Master``."""

    def __init__(self, master: MemoryMaster) -> None:
        self._master = master
        self.url = master.url
        self.socket_path = master.url.removeprefix("unix://")
        #: None while it is stopped.
        self.pid: int | None = 1

    def ask(self, line: str, timeout: float = 0.0) -> str:
        return self._master.ask(line)

    def pause(self) -> None:
        self._master.slow(HANGS)

    def resume(self) -> None:
        self._master.slow(0.0)

    def kill(self) -> None:
        self._master.stop()
        self.pid = None

    def restart(self) -> None:
        self._master.restart_empty()
        self.pid = 1


class MemoryFleet:
    """Masters in memory, to be used as ``embedded.Masters``."""

    def __init__(self, masters: MemoryMasters) -> None:
        self._masters = [AsReal(master) for master in masters]
        self.urls = masters.urls

    def __len__(self) -> int:
        return len(self._masters)

    def __getitem__(self, index: int) -> AsReal:
        return self._masters[index]

    def __iter__(self) -> Iterator[AsReal]:
        return iter(self._masters)
