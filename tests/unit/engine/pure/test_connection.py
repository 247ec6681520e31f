"""What a connection does with exceptions of its socket."""

from __future__ import annotations

from math import inf
from unittest.mock import Mock

import pytest

from redlock_fast.engine.pure.channel import MasterChannel
from redlock_fast.engine.pure.connection import TlsConnection
from redlock_fast.engine.pure.subscriptions import Subscriptions
from redlock_fast.wire.dialect import Capabilities, dialect


@pytest.mark.parametrize("move", ["send", "receive"])
def test_stop_iteration_of_a_handler_inside_tls(move: str) -> None:
    """The methods of its socket are Python. Catches: an iterator that takes it for its end."""
    raises = Mock(side_effect=StopIteration)
    sock = Mock(send=raises, recv=raises)
    channel = MasterChannel(0, (1, 1, 1), inf, Subscriptions())
    connection = TlsConnection(channel, sock, dialect(Capabilities()))
    connection.sending += b"x"
    with pytest.raises(StopIteration):
        getattr(connection, move)()
    assert connection.moving, "its bytes are unknown: the connection ends"
