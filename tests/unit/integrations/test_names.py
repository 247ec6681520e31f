"""The name of a request's lock."""

from __future__ import annotations

from typing import Any

import pytest

from redlock_fast.errors import ConfigError
from redlock_fast.integrations.names import name_of


def test_names() -> None:
    assert name_of("orders:{order_id}")("request", order_id=42, other=1) == "orders:42"
    assert name_of("{a}:{b:03d}{{x}}")(a="{b}", b=7) == "{b}:007{x}"
    assert name_of("nightly")() == "nightly"
    assert name_of(b"{a}")(1, a=2) == b"{a}"
    assert name_of(lambda request, a: f"{request}:{a}")("r", a=1) == "r:1"


@pytest.mark.parametrize(
    ("resource", "why"),
    [
        (None, "must be str, bytes or a function, not NoneType"),
        ("orders:{", "write {{ or }} for a brace"),
        ("orders:{}", "'' is no name of a parameter"),
        ("orders:{0}", "'0' is no name"),
        ("{order.__class__}", "'order.__class__' is no name"),
        ("{order[key]}", "is no name"),
    ],
)
def test_bad_resources(resource: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=r"^resource") as caught:
        name_of(resource)
    assert why in str(caught.value)


def test_a_parameter_that_the_path_has_not() -> None:
    with pytest.raises(ConfigError, match=r"the path has no 'order'; it has: id, page"):
        name_of("{id}:{order}")(id=1, page=2)
