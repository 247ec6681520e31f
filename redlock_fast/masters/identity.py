"""Whether two connections lead to the same server.

Masters of one client must be different servers, or one server has two votes. A run_id is no proof, because
any server can claim one. So a random key is written to one server and looked for on the other.
"""

from __future__ import annotations

import os

from ..engine.contract import TRANSIENT_ERRORS, Engine, Request
from ..wire.commands import Verb
from ..wire.resp import error_code
from .connect import ProbedConnection

#: The random key: its prefix, and the milliseconds that it lives.
KEY, KEY_TTL = b"redlock-fast:", 10_000


def is_same_server(
    probed: ProbedConnection, engine: Engine, master: int, database: str, key_prefix: bytes, timeout: float
) -> bool | None:
    """Whether ``probed`` leads to the server of ``master``, which ``engine`` is connected to.

    ``database``: that of ``master``; ``probed`` may have another one.
    None: ``master`` neither took the key nor said that it is missing within ``timeout`` seconds. A master
    that refuses writes for now is asked for a key that was written through ``probed``. Raises ConnectError
    if ``probed`` fails.
    """
    key, value = key_prefix + KEY + os.urandom(16).hex().encode(), os.urandom(16).hex().encode()
    write = Request(Verb.REFILL, (key, value, b"%d" % KEY_TTL), 1 << master)
    votes = engine.exchange([write], 1, timeout)[0]
    if votes.granted:
        return probed.get(key, database) == value
    detail = votes.details.get(master, b"")
    if isinstance(detail, bytes) and error_code(detail) in TRANSIENT_ERRORS:
        probed.put(key, value, KEY_TTL, database)
        look = Request(Verb.EXISTS, (key,), 1 << master)
        if engine.exchange([look], 1, timeout)[0].refused:
            return False
    return None
