"""The topology of a Cluster: which primary serves which slots now, as its nodes say.

``redis+cluster://[user:password@]host[:port][,host[:port]...][?option=value]``, and ``rediss+cluster`` for
TLS. Any node may be named, a replica too, because each node knows all others.

A shard is a primary with its replicas. To a client each shard is one master, with a number that stays: the
primary behind it changes by a failover, as that of a service of Sentinels does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..engine.contract import MAX_MASTERS
from ..wire.slots import SLOTS, slot_of, tag_in
from .connect_errors import connect_error
from .probe import ConnectError, Refused, info_of, send_commands
from .sentinel import WrongPart, address_of, bounded

CLUSTER_SCHEMES = ("redis+cluster://", "rediss+cluster://")
DEFAULT_PORT = 6379
#: Seconds for which an answer is good enough for another shard that is dialled meanwhile.
FRESH = 0.1
#: How many nodes an error names.
MAX_NODES_NAMED = 5

Address = tuple[str, int]


def parse_cluster_url(url: str) -> tuple[tuple[Address, ...], str]:
    """The nodes that a Cluster's URL names, and the URL of a server with its other settings.

    Raises WrongPart, and ValueError, whose text may hold a secret.
    """
    parts = urlsplit(url)
    login, at, where = parts.netloc.rpartition("@")
    if not where or parts.fragment or parts.path.strip("/") not in ("", "0"):
        raise WrongPart("it needs the address of a node, and a Cluster has one database, 0")
    nodes = tuple(address_of(text, DEFAULT_PORT) for text in where.split(","))
    query = f"?{parts.query}" if parts.query else ""
    return nodes, f"{parts.scheme.removesuffix('+cluster')}://{login}{at}localhost/0{query}"


class Primary(NamedTuple):
    """One primary in the reply of a node. ``members``: the ids of it and its replicas. ``nodes``: where."""

    id: str
    where: Address
    members: frozenset[str]
    nodes: tuple[Address, ...]
    slots: list[int]


@dataclass(eq=False, slots=True)
class Shard:
    """One shard. ``where``: its primary; None: it serves no slot now. ``id``, ``members``: of its nodes.

    ``tag``: a hash tag of one of its slots: keys of this library that belong to its primary, such as the
    marker, have it. ``silent_until``: until when it may lack keys, by the monotonic clock.
    """

    where: Address | None = None
    id: str = ""
    members: frozenset[str] = field(default_factory=frozenset)
    tag: bytes = b""
    silent_until: float = 0.0


class Topology:
    """What a client knows of one Cluster. ``connect``: makes a connection of redis-py to an address.

    ``owners``: for each slot the bit mask of its shard's number, 0 if none serves it. ``shards``: by number.
    ``silence``: seconds for which a promoted primary may lack keys. ``suspects``: by slot, until when nothing
    is granted there, because the slot came from a shard that may have lacked its keys.
    ``stale``: whether a reply of a node has contradicted it. ``on_stale``: is called then, and must be quick.
    """

    def __init__(
        self, nodes: tuple[Address, ...], connect: Callable[..., Any], connection_class: Any
    ) -> None:
        self._named = nodes
        self._nodes = nodes  # all that are known, first those that the last answer had
        self._asked = 0
        self._connect = connect
        self._class = connection_class
        self._epoch = 0  # the largest that any node has told
        self._read_at = -FRESH
        self._mutex = threading.Lock()
        self.owners: list[int] = [0] * SLOTS
        self.shards: list[Shard] = [Shard()]
        self.silence: float = 0.0
        self.suspects: dict[int, float] = {}
        self.stale: bool = False
        self.on_stale: Callable[[], None] | None = None

    def after_fork_in_child(self) -> None:
        """A thread of the parent may have held the mutex."""
        self._mutex = threading.Lock()

    # --- what was read ---

    def owned(self, number: int, slot: int) -> bool:
        """Whether a shard serves ``slot``."""
        return bool(self.owners[slot] >> number & 1)

    def homeless(self, number: int) -> bool:
        """Whether the keys of this library at a shard belong to another one by now."""
        tag = self.shards[number].tag
        return tag != b"" and not self.owned(number, slot_of(tag))

    def own_prefix(self, number: int, key_prefix: bytes) -> bytes:
        """``key_prefix`` for keys that must belong to this shard."""
        shard = self.shards[number]
        if not shard.tag or self.homeless(number):
            shard.tag = tag_in(lambda slot: self.owned(number, slot))
        tag = b"{%b}" % shard.tag
        return tag + key_prefix if b"{" in key_prefix else key_prefix + tag

    def number_at(self, where: Address) -> int | None:
        """The shard whose primary is there."""
        return next((number for number, one in enumerate(self.shards) if one.where == where), None)

    def moved(self, slot: int, where: Address) -> int | None:
        """A node says that the primary at ``where`` serves ``slot``. Returns its number, if that is known."""
        number = self.number_at(where)
        if number is not None:
            self._suspect(slot, 1 << number)
            self.owners[slot] = 1 << number
        self.doubt()
        return number

    def _suspect(self, slot: int, owner: int) -> None:
        """Note that ``slot`` may come without its keys: the guard of its former shard goes with it."""
        former = self.owners[slot]
        if former and former != owner:
            until = self.shards[former.bit_length() - 1].silent_until
            if until > time.monotonic():
                self.suspects[slot] = max(until, self.suspects.get(slot, 0.0))

    def grants(self, slot: int) -> bool:
        """Whether the shard of ``slot`` may grant what it does not have."""
        until = self.suspects.get(slot, 0.0)
        if until and until <= time.monotonic():
            self.suspects.pop(slot, None)
            return True
        return not until

    def doubt(self) -> None:
        """A node has contradicted what is known: it is read again soon."""
        if not self.stale:
            self.stale = True
            if self.on_stale is not None:
                self.on_stale()

    # --- reading ---

    def primary(self, number: int, timeout: float) -> Address:
        """Where the primary of a shard is, read now. ``timeout``: seconds for each node's reply.

        Raises ConnectError.
        """
        self.read(timeout, FRESH)
        where = self.shards[number].where
        if where is None:
            raise ConnectError("it serves no slot of the Cluster any more")
        return where

    def read(self, timeout: float, fresh: float = 0.0) -> None:
        """Ask nodes, each time beginning with the next one, until one answers that is not behind others.

        A node that was cut off has old information, and an older epoch: every failover and every move of a
        slot begins a new one. ``fresh``: an answer that is so many seconds old is enough. Raises
        ConnectError.
        """
        with self._mutex:
            if time.monotonic() - self._read_at < fresh and not self.stale:
                return
            nodes = self._nodes
            first, self._asked = self._asked % len(nodes), self._asked + 1
            errors, behind = [], []
            for where in nodes[first:] + nodes[:first]:
                try:
                    epoch, primaries = self._ask(where, timeout)
                except Exception as error:  # redis-py raises many kinds for replies that it does not expect
                    errors.append(connect_error(error, f" ({where[0]}:{where[1]})"))
                    continue
                behind.append((epoch, primaries))
                if epoch >= self._epoch:
                    break
            if not behind:
                refusals = (one for one in errors if isinstance(one, Refused))
                named = "; ".join(map(str, errors[:MAX_NODES_NAMED]))
                raise next(refusals, ConnectError(f"no node of the Cluster answers: {named}"))
            self._epoch, primaries = max(behind, key=lambda answer: answer[0])
            self._adopt(primaries)
            self._read_at, self.stale = time.monotonic(), False

    def _ask(self, where: Address, timeout: float) -> tuple[int, list[Primary]]:
        """The epoch and the primaries that a node knows."""
        host, port = where
        connection = self._connect(timeout, 2, host=host, port=port, make=bounded(self._class, timeout))
        try:
            connection.connect()
            said, slots = send_commands(connection, [("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")])
        finally:
            connection.disconnect()
        if isinstance(slots, Exception):
            raise slots
        primaries = primaries_of(slots, host)
        if not primaries:
            raise ConnectError("it knows no primary that serves slots")
        return int(info_of(said).get("cluster_current_epoch", "0")), primaries

    def _adopt(self, primaries: list[Primary]) -> None:
        """Give each primary the number of its shard; a primary of no known shard gets a new number."""
        numbers: dict[int, Primary] = {}
        rest = list(primaries)
        same: tuple[Callable[[Shard, Primary], bool], ...] = (
            lambda shard, one: shard.id == one.id,
            lambda shard, one: one.id in shard.members,  # a replica of it was promoted
        )
        for is_same in same:
            for one in list(rest):
                free = ((n, shard) for n, shard in enumerate(self.shards) if n not in numbers)
                number = next((n for n, shard in free if is_same(shard, one)), None)
                if number is not None:
                    numbers[number] = one
                    rest.remove(one)
        for one in rest:
            if self.shards[-1].id:  # the first one has none before the first answer
                self.shards.append(Shard())
            number = len(self.shards) - 1
            if number == MAX_MASTERS:
                raise ConnectError(f"the Cluster has more than {MAX_MASTERS} primaries")
            self.shards[number].id = one.id
            numbers[number] = one
        owners = [0] * SLOTS
        for number, now in numbers.items():
            shard = self.shards[number]
            if shard.where is not None and shard.id != now.id:
                shard.silent_until = time.monotonic() + self.silence
        told_of = frozenset[str]().union(*(one.members for one in primaries))
        for number, shard in enumerate(self.shards):
            primary = numbers.get(number)
            shard.where = primary.where if primary else None
            if primary is not None:
                # A node that is down is not told of. It may come back, and be promoted.
                shard.id, shard.members = primary.id, (shard.members - told_of) | primary.members
                for slot in primary.slots:
                    owners[slot] = 1 << number
                    self._suspect(slot, 1 << number)
        self.owners = owners
        told = [where for one in primaries for where in one.nodes]
        self._nodes = tuple(dict.fromkeys((*told, *self._named)))


def primaries_of(slots: Any, host: str) -> list[Primary]:
    """The primaries in a reply to CLUSTER SLOTS of the node at ``host``. Raises ConnectError.

    Each entry has the first and the last slot of a range, then the nodes: host, port and id, the primary
    first. Without a host a node means the one that was asked.
    """
    found: dict[str, Primary] = {}
    try:
        for first, last, *nodes in slots:
            ids = [_text(node[2]) for node in nodes]
            places = tuple((_text(node[0]) or host, int(node[1])) for node in nodes)
            own = Primary(ids[0], places[0], frozenset(ids), places, [])
            found.setdefault(ids[0], own).slots.extend(range(max(0, first), min(last + 1, SLOTS)))
    except (IndexError, TypeError, ValueError):
        raise ConnectError("an unexpected reply to CLUSTER SLOTS") from None
    return [one for one in found.values() if one.slots]


def _text(word: Any) -> str:
    return word.decode(errors="backslashreplace") if isinstance(word, bytes) else ""
