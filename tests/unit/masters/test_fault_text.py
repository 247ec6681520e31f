"""The text of a fault: any reply of a master can be shown, but not what servers repeat of a request."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import cases
from support.resp_streams import EVERY, reply
from support.thorough import amount

from redlock_fast.masters.faults import fault_text
from redlock_fast.wire.resp import PARTIAL, ProtocolError, frame


def whole(data: bytes) -> bool:
    """Whether an engine would take it for one reply."""
    try:
        return frame(data, 0) == len(data) != PARTIAL
    except ProtocolError:
        return False


@cases("detail, text",
    [
        ("not connected", "not connected"),
        (b"-OOM command not allowed\r\n", "OOM command not allowed"),
        (b"+QUEUED\r\n", "unexpected reply b'+QUEUED\\r\\n'"),
        (b"%1\r\n*0\r\n:1\r\n", "unexpected reply b'%1\\r\\n*0\\r\\n:1\\r\\n'"),
        (b",x\r\n", "unexpected reply b',x\\r\\n'"),
        (b"-ERR unknown command 'DELIFEQ', with args beginning with: 'key' 'token' \r\n",
         "ERR unknown command 'DELIFEQ'"),
        (b"-ERR unknown command `AUTH`, with args beginning with: `pw`, \r\n", "ERR unknown command `AUTH`"),
    ],
)  # fmt: skip
def test_text(detail: str | bytes, text: str) -> None:
    assert fault_text(detail) == text


@cases("data", list(filter(whole, EVERY)), ids=lambda data: repr(data[:24])[2:-1])
def test_every_kind_of_reply_has_one(data: bytes) -> None:
    assert "\n" not in fault_text(data)


@settings(max_examples=amount(60, 500, twice=500), deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_any_reply_has_one(chance: Random) -> None:
    data = reply(chance)
    if whole(data):
        assert "\n" not in fault_text(data)
