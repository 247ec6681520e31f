import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, final, overload

from ..wire.commands import Dialect
from .contract import LAG_AFTER as LAG_AFTER
from .contract import MAX_BUFFER as MAX_BUFFER
from .contract import MAX_MASTERS as MAX_MASTERS
from .contract import MAX_OWED as MAX_OWED
from .contract import MAX_REPLAY as MAX_REPLAY
from .contract import Batch, BatchVotes, ConnectionState, Quorums, Request, Votes

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
        lag_after: float = ...,
    ) -> Self: ...
    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None: ...
    def detach(self, master: int) -> socket.socket | None: ...
    @overload
    def exchange(
        self,
        requests: Sequence[Request],
        need: int | Quorums,
        timeout: float,
        wait: int = ...,
        stall: float = ...,
    ) -> list[Votes]: ...
    @overload
    def exchange(
        self, requests: Batch, need: int | Quorums, timeout: float, wait: int = ..., stall: float = ...
    ) -> BatchVotes: ...
    def fileno(self) -> int: ...
    def close_loop_fd(self) -> None: ...
    def submit(
        self,
        requests: Sequence[Request] | Batch,
        need: int | Quorums,
        timeout: float,
        wait: int,
        stall: float,
        context: object,
    ) -> object: ...
    def cancel(self, ticket: object) -> None: ...
    def flush(self) -> None: ...
    def on_ready(self) -> list[tuple[object, Any]]: ...
    def next_timeout(self) -> float | None: ...
    def maintain(self) -> None: ...
    def drain(self, timeout: float) -> bool: ...
    def connection_state(self, master: int) -> ConnectionState: ...
    def close(self, on_socket: Callable[[socket.socket], object] = ...) -> None: ...
    def after_fork_in_child(self) -> None: ...
