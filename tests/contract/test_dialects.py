"""A dialect whose commands need what no request has is refused when a connection is attached."""

from __future__ import annotations

import socket

import pytest

from redlock_fast.engine.contract import Engine
from redlock_fast.wire.commands import MAX_ARGS, Command

LAST = MAX_ARGS - 1


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        (Command((b"x", LAST)), False),
        (Command((b"x", ~LAST)), False),
        (Command((b"x", 0), rollback_verb=0), False),
        (Command((b"x", MAX_ARGS)), True),
        (Command((b"x", ~MAX_ARGS)), True),
        (Command((b"x", 0), fallback=Command((b"y", MAX_ARGS))), True),
        (Command((b"x", 1 << 40)), True),
        (Command((b"x", 0), rollback_verb=1), True),
        (Command((b"x", 0), rollback_verb=-1), True),
        (Command((b"x", 0), confirm_verb=1, replicas=1), True),
        (Command((b"x", 0), confirm_verb=0), True),
    ],
)
def test_commands(engine_class: type[Engine], command: Command, refused: bool) -> None:
    engine = engine_class(1, lambda: None)
    ours, theirs = socket.socketpair()
    try:
        if refused:
            with pytest.raises(ValueError, match=r"a command|verb"):
                engine.attach(0, ours, (command,))
        else:
            engine.attach(0, ours, (command,))
    finally:
        engine.close()
        ours.close()
        theirs.close()
