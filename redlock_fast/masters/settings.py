"""How the masters of one client are connected."""

from __future__ import annotations

from typing import NamedTuple

from ..engine.contract import Engine
from .restart_guard import Guard


class ConnectorSettings(NamedTuple):
    """How the masters of one client are connected: the options of the same names. Times in seconds."""

    engine_class: type[Engine]
    node_timeout: float
    connect_timeout: float
    socket_timeout: float
    key_prefix: bytes
    guard: Guard
    wait: str
    allow_split: bool
    check_masters: str = "off"
    replicas: int = 0
