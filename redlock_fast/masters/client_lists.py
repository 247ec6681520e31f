"""The lists of masters that a client counts by, and what a record of masters allows it."""

from __future__ import annotations

from typing import NamedTuple

from .membership import Record, ids_of

Class = tuple[frozenset[str], ...]
"""The list that a client at one step needs a quorum of, as ids; of a joint client both lists."""


class ClientLists(NamedTuple):
    """The lists of one client, as masks of its masters: one list, or the new list and the old list.

    ``max_ttl``: of the client, in milliseconds. ``strict``: no votes before a list is in force.
    """

    lists: tuple[int, ...]
    max_ttl: int
    strict: bool = False

    def step_of(self, record: Record) -> str:
        """The step that a record allows for this client, by the numbers of masters; "": it allows none."""
        sizes = [mask.bit_count() for mask in self.lists]
        steps = record.steps if record.max_ttl == self.max_ttl else ()
        return next((step for step in steps if [len(one) for one in record.lists(step)] == sizes), "")

    def class_of(self, record: Record) -> Class | None:
        """The class of clients that a record allows, if this client may be of it."""
        step = self.step_of(record)
        return tuple(map(ids_of, record.lists(step))) if step else None

    def is_member(self, master: int, id: str, of: Class) -> bool:
        """Whether ``id`` is in each list of the class in which the client has the master."""
        return all(id in ids for ids, mask in zip(of, self.lists, strict=True) if mask >> master & 1)
