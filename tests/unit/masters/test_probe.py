"""What a probe makes of a server's replies."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError

from redlock_fast.masters.probe import ConnectError, Server, probe, with_witness

UNKNOWN, DENIED = (
    ResponseError("unknown command"),
    ResponseError("NOPERM this user has no permissions to run"),
)
NO_KEY = ResponseError("NOPERM No permissions to access a key")


class Connection:
    """Answers each command by its first words; all else with OK."""

    db = 0

    def __init__(self, **replies: Any) -> None:
        self.replies: dict[str, Any] = {
            "INFO server": b"valkey_version:9.0.1\r\nrun_id:abc\r\nuptime_in_seconds:12\r\n",
            "INFO replication": b"role:master\r\nmaster_replid:r1\r\nmaster_replid2:0000\r\n",
            "ROLE": [b"master", 0, []],
            "INFO keyspace": b"db0:keys=1\r\n",
            "CONFIG GET *append*": [b"appendonly", b"yes", b"appendfsync", b"always"],
            "INFO memory": b"maxmemory:100\r\nmaxmemory_policy:noeviction\r\n",
            "CONFIG GET min-replicas*": [b"min-replicas-to-write", b"1", b"min-replicas-max-lag", b"10"],
            **{name.replace("_", " "): reply for name, reply in replies.items()},
        }
        self.sent: list[str] = []

    def pack_commands(self, commands: Any) -> list[str]:
        return [" ".join(w if isinstance(w, str) else w.decode() for w in command) for command in commands]

    def send_packed_command(self, commands: list[str], check_health: bool) -> None:
        self.sent += commands

    def read_response(self) -> Any:
        command = self.sent.pop(0)
        reply = next((self.replies[key] for key in self.replies if command.startswith(key)), b"OK")
        if isinstance(reply, Exception):
            raise reply
        return reply


def server(protocol: int = 3, **replies: Any) -> Server:
    return probe(Connection(**replies), protocol, b"prefix:")


def test_a_server_that_reports_all() -> None:
    found = server()
    assert (found.kind, found.version, found.run_id, found.uptime) == ("valkey", "9.0.1", "abc", 12)
    assert (found.role, found.replid, found.promoted, found.protocol) == ("master", "r1", False, 3)
    assert (found.min_replicas, found.max_lag, found.shared, found.witness) == (1, 10, False, True)
    assert (found.lag, found._replace(min_replicas=0).lag) == (10, 0)
    assert (found.durable, found.evicts, found.can.delifeq, found.can.expire_gt) == (False, False, True, True)


def test_a_server_that_reports_nothing() -> None:
    commands = ("CLIENT", "INFO", "ROLE", "CONFIG", "DELIFEQ", "DELEX", "PEXPIRE")
    connection = Connection()
    connection.replies = dict.fromkeys(commands, DENIED)
    found = probe(connection, 3, b"")
    assert found == Server(protocol=3)


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        ({"INFO_server": b"redis_mode:cluster\r\n"}, "node of a Cluster"),
        ({"ROLE": [b"slave", b"h", 1]}, "it is a slave, not a master"),
        ({"ROLE": DENIED, "INFO_replication": b"role:slave\r\n"}, "it is a slave, not a master"),
    ],
)
def test_no_master(replies: dict[str, Any], text: str) -> None:
    with pytest.raises(ConnectError, match=text):
        server(**replies)


@pytest.mark.parametrize(
    ("config", "persistence"),
    [
        ([], ""),
        (DENIED, ""),
        ([b"appendonly", b"no"], "no aof"),
        ([b"appendonly", b"yes", b"appendfsync", b"everysec"], "aof everysec"),
        ([b"appendonly", b"yes", b"appendfsync", b"always"], "aof not on rewrite"),
        (
            [b"appendonly", b"yes", b"appendfsync", b"always", b"no-appendfsync-on-rewrite", b"no"],
            "aof always",
        ),
    ],
)
def test_persistence(config: Any, persistence: str) -> None:
    found = server(**{"CONFIG_GET_*append*": config})
    assert (found.persistence, found.durable) == (persistence, persistence == "aof always")


def test_commands_that_are_missing_or_forbidden() -> None:
    redis = {"INFO_server": b"redis_version:8.4.0\r\n"}
    found = server(DELIFEQ=UNKNOWN, DELEX=NO_KEY, PEXPIRE=UNKNOWN, **redis).can
    assert (found.delifeq, found.delex, found.expire_gt) == (False, True, False)
    found = server(DELIFEQ=DENIED, DELEX=DENIED, PEXPIRE=NO_KEY).can
    assert (found.delifeq, found.delex, found.expire_gt) == (False, False, True)


def test_other_databases_and_eviction() -> None:
    found = server(**{"INFO_keyspace": b"db3:keys=1\r\n", "INFO_memory": b"maxmemory:0\r\n"})
    assert (found.shared, found.eviction) == (True, "noeviction")
    assert not server(protocol=2).witness


def test_flushes_are_counted() -> None:
    calls = {b"flushall": 3, b"get": 100, b"flushdb": 20, b"config|get": 1, b"swapdb": 1}
    stats = b"# Commandstats\r\n" + b"".join(
        b"cmdstat_%b:calls=%d,usec=7,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n" % one
        for one in calls.items()
    )
    assert server(INFO_commandstats=stats).flushes == 24
    assert server(INFO_commandstats=DENIED).flushes == server().flushes == 0
    hostile = b"cmdstat_flushall:calls=%b,\r\n x:cmdstat_flushall:calls=1,\r\n" % (b"9" * 5000)
    assert server(INFO_commandstats=hostile).flushes == 0


def test_the_witness_key() -> None:
    assert with_witness(Connection(GET=b"value"), Server(), b"prefix:").data == b"value"
    assert with_witness(Connection(GET=DENIED), Server(), b"prefix:").data == b""
