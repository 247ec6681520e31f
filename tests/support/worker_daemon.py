"""A daemon: it closes all descriptors, opens its own, and then uses a client that was made before.

``python worker_daemon.py ENGINE REPORT detached|attached used|unused URL...`` The report tells what the
library did with the descriptors of the daemon.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from pathlib import Path

import daemon  # type: ignore[import-untyped]

from redlock_fast import FastRedlock

ENGINE, REPORT, DETACHED, USED, *URLS = sys.argv[1:]
#: More than a client has descriptors.
FILES, PAIRS, THREADS, LOCKS = 30, 10, 4, 50


def use(client: FastRedlock, name: str) -> None:
    for _ in range(LOCKS):
        with client.lock(name, 30.0, timeout=60.0):
            pass


def main() -> None:
    client = FastRedlock(URLS, engine=ENGINE, node_timeout=5.0, connect_timeout=20.0, restart_guard="off")
    if USED == "used":
        use(client, "before")
    with daemon.DaemonContext(detach_process=DETACHED == "detached", working_directory="/"):
        folder = Path(REPORT).parent
        files = [(folder / f"stranger-{n}").open("w+b") for n in range(FILES)]
        pairs = [socket.socketpair() for _ in range(PAIRS)]
        ours = [one.fileno() for one in files] + [one.fileno() for pair in pairs for one in pair]
        identities = [os.fstat(fd)[:3] for fd in ours]
        try:
            threads = [threading.Thread(target=use, args=(client, "shared")) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            use(client, "alone")
            client.close()
        except Exception as error:
            report(f"{type(error).__name__}: {error}")
            return
        wrong = []
        for fd, identity in zip(ours, identities, strict=True):
            try:
                if os.fstat(fd)[:3] != identity:
                    wrong.append(f"{fd} is another file")
            except OSError:
                wrong.append(f"{fd} is closed")
        wrong += [f"{one.name} has {size} bytes" for one in files if (size := os.fstat(one.fileno()).st_size)]
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
                try:
                    got = end.recv(100)
                    wrong.append(f"a socket got {got!r}")
                except BlockingIOError:
                    pass
                except OSError as error:
                    wrong.append(f"a socket is broken: {error}")
        report("; ".join(wrong) or "untouched")
        os._exit(0)


def report(text: str) -> None:
    path = Path(REPORT)
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # there is no stderr any more
        report(traceback.format_exc())
