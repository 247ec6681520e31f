"""The types of the fixtures that make clients, as tests annotate them."""

from __future__ import annotations

from collections.abc import Callable

import redis
from support.event_loops import Plain

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]
MakeAio = Callable[..., AsyncFastRedlock]
MakePlain = Callable[..., Plain]
#: A client of redis-py for each master.
Raw = Callable[[Masters], list[redis.Redis]]
