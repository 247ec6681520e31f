"""Names and tokens in the forms that other libraries accept."""

from __future__ import annotations

from typing import Any


def encodable(value: Any) -> Any:
    """``value`` as a name or a token: numbers and buffers become the text or bytes that redis-py sends."""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return value
