import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, final

from ._commands import Dialect
from ._engine import MAX_BUFFER as MAX_BUFFER
from ._engine import MAX_MASTERS as MAX_MASTERS
from ._engine import MAX_OWED as MAX_OWED
from ._engine import MAX_REPLAY as MAX_REPLAY
from ._engine import Link, Request, Votes

__test__: Final[dict[str, Any]]

@final
class NativeEngine:
    def __new__(
        cls,
        masters: int,
        on_break: Callable[[], None],
        *,
        max_owed: int = ...,
        max_buffer: int = ...,
        max_replay: int = ...,
    ) -> Self: ...
    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None: ...
    def detach(self, master: int, of: int, undo: int) -> socket.socket | None: ...
    def exchange(
        self, requests: Sequence[Request], need: int, timeout: float, wait: int = ...
    ) -> list[Votes]: ...
    def tend(self) -> None: ...
    def drain(self, timeout: float) -> bool: ...
    def link(self, master: int) -> Link: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...
