"""The record of masters: each master says of which lists of masters it is, so that a wrong list is seen.

Two clients with different lists can both have a quorum. So each master keeps one record for each key prefix.
A master votes for a client only if its record allows the client's lists, see ``list_check``. No I/O.
The record changes in phases: docs/changing-masters.md has the steps, ``proof/membership.py`` the model.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from ..engine.contract import MAX_MASTERS
from ..wire.text import clean

#: The key of the record, after the key prefix.
KEY = b"redlock-fast:masters"
#: The version of the encoding. Records of a later version are not understood.
VERSION = 1
#: Bytes of a record; characters of an id and of an address.
MAX_RECORD, ID, MAX_ADDRESS = 60 << 10, 32, 200
#: For how many ``max_ttl`` a client believes that a quorum of its list has the records that it saw there. A
#: change of the masters waits as long between its phases, so no client can believe through all of it.
CONFIRMED_FOR = 4
#: Numbers of a record are at most this.
MAX_NUMBER = 1 << 53

#: The steps of a client: a quorum of the old list, of both lists, of the new list.
OLD, JOINT, NEW = STEPS = ("old", "joint", "new")
#: The steps that the phases of a change allow, in their order. Between changes only NEW is allowed.
STEADY, PHASE_1, PHASE_2 = (NEW,), (OLD, JOINT), (JOINT, NEW)

Members = tuple[tuple[str, str], ...]
"""One list: the id of each master, and the address by which it was reached. Ordered by id."""

#: Sets the record, if it is still the expected one ("": there is none). Returns the record that is there now.
REPLACE = b"""local now=redis.call('get',KEYS[1]) or ''
if now~=ARGV[1] then return now end
redis.call('set',KEYS[1],ARGV[2])
return ARGV[2]"""


class Unreadable(ValueError):
    """A value is no record, or one of a later version. Its text is for people."""


class Record(NamedTuple):
    """What a master keeps.

    ``id``: of this master, written once. ``epoch``: counts the phases; 0: no list is known yet.
    ``max_ttl``: of all clients, in milliseconds. ``steps``: at which clients may be. ``old``, ``new``: the
    lists; ``old`` is empty between changes. ``in_force``: every master of the lists had this record once.
    ``toward``: "new" or "old", where only JOINT is allowed: the list that clients may use alone afterwards.
    ``stamp``: a random word of the operator's write; "": a client wrote it. So the operator sees whether a
    master has lost its record since, and has got the same one back from a client.
    """

    id: str
    epoch: int = 0
    max_ttl: int = 0
    steps: tuple[str, ...] = ()
    old: Members = ()
    new: Members = ()
    in_force: bool = False
    toward: str = ""
    stamp: str = ""

    def lists(self, step: str) -> tuple[Members, ...]:
        """The lists of which a client at ``step`` needs a quorum each. The new list is first."""
        return {OLD: (self.old,), JOINT: (self.new, self.old), NEW: (self.new,)}[step]

    @property
    def terms(self) -> tuple[Any, ...]:
        """What is equal in the records of all masters, by whatever addresses they were reached."""
        return self.epoch, self.max_ttl, self.steps, ids_of(self.old), ids_of(self.new), self.toward

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each master of both lists, by its id."""
        return dict(self.old + self.new)

    def of(self, id: str) -> Record:
        """The same record for the master ``id``, without the stamp: that is of one write on one master."""
        return self._replace(id=id, stamp="")


class Seen(NamedTuple):
    """The record of a master as it was read.

    ``data``: the bytes; b"": there is none. ``record``: None if there is none, or if it cannot be read.
    ``error``: why it cannot be read. ``compared``: this user may read the key.
    """

    data: bytes = b""
    record: Record | None = None
    error: str = ""
    compared: bool = True


def seen(reply: Any) -> Seen:
    """What a reply to GET, or to ``replace_command``, says of the record. Raises replies that are errors."""
    from redis.exceptions import NoPermissionError

    if isinstance(reply, NoPermissionError):
        return Seen(compared=False)
    if isinstance(reply, Exception) and not str(reply).startswith("WRONGTYPE"):
        raise reply
    data = reply if isinstance(reply, bytes) else b"" if reply is None else b"?"
    try:
        return Seen(data, decode(data) if data else None)
    except Unreadable as error:
        return Seen(data, error=str(error))


def record_key(key_prefix: bytes) -> bytes:
    return key_prefix + KEY


def new_id() -> str:
    return os.urandom(ID // 2).hex()


def first_id(address: str) -> str:
    """The id of a master that has none, in a list that no master knows yet.

    It is not random: clients that start at one time, and reach different masters, write the same list.
    """
    import hashlib  # late, because it loads OpenSSL

    return hashlib.sha256(address.encode()).hexdigest()[:ID]


def members(addresses: dict[str, str]) -> Members:
    """A list of masters from their addresses by id."""
    return tuple(sorted((id, address_of(name)) for id, name in addresses.items()))


def ids_of(one: Members) -> frozenset[str]:
    return frozenset(id for id, _ in one)


def address_of(name: str) -> str:
    """The address of a master in a record, by its name in errors. It has no secrets."""
    return clean(name, MAX_ADDRESS)


def replace_command(key_prefix: bytes, expected: bytes, record: Record) -> tuple[bytes, ...]:
    """The command that sets a record in place of ``expected``, the bytes that were read (b"": none)."""
    return b"EVAL", REPLACE, b"1", record_key(key_prefix), expected, encode(record)


def encode(record: Record) -> bytes:
    fields = {
        "version": VERSION,
        "id": record.id,
        "epoch": record.epoch,
        "max_ttl": record.max_ttl,
        "steps": record.steps,
        "old": dict(record.old),
        "new": dict(record.new),
        "in_force": record.in_force,
        "toward": record.toward,
        "stamp": record.stamp,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> Record:
    """The record in ``data``. Raises Unreadable; a hostile master may send anything."""
    try:
        if len(data) > MAX_RECORD:
            raise ValueError
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError
        if _number(fields["version"]) > VERSION:
            raise Unreadable("its record of masters was written by a later version of redlock-fast")
        steps = tuple(step for step in STEPS if step in fields["steps"])
        if list(steps) != fields["steps"] or not isinstance(fields["in_force"], bool):
            raise ValueError
        record = Record(
            _id(fields["id"]),
            _number(fields["epoch"]),
            _number(fields["max_ttl"]),
            steps,
            _members(fields["old"]),
            _members(fields["new"]),
            fields["in_force"],
            _toward(fields["toward"]),
            _stamp(fields.get("stamp", "")),
        )
        lists_of = {OLD: record.old, JOINT: record.old and record.new, NEW: record.new}
        if bool(record.epoch) != bool(steps) or not all(lists_of[step] for step in steps):
            raise ValueError
        return record
    except Unreadable:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreadable(
            f"its record of masters is damaged: delete the key {KEY.decode()}, with the key_prefix, there"
        ) from None


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise ValueError
    return value


def _id(value: Any) -> str:
    if not isinstance(value, str) or len(value) != ID or not value.isalnum() or not value.isascii():
        raise ValueError
    return value


def _toward(value: Any) -> str:
    if value not in ("", OLD, NEW):
        raise ValueError
    return str(value)


def _stamp(value: Any) -> str:
    return "" if value == "" else _id(value)


def _members(value: Any) -> Members:
    if not isinstance(value, dict) or len(value) > MAX_MASTERS:
        raise ValueError
    if not all(isinstance(address, str) for address in value.values()):
        raise ValueError
    return members({_id(id): address for id, address in value.items()})
