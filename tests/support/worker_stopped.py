"""A process that acquires, extends and releases until its input ends, in ``threads`` threads; another process
stops it now and then. Prints "running", and at the end what failed.
"""

import json
import logging
import sys
import threading

from redlock_fast import FastRedlock, RedlockError


def main(urls: list[str], engine: str, node_timeout: float, socket_timeout: float, threads: int) -> None:
    failures: list[str] = []
    lost = logging.Handler(logging.WARNING)
    lost.emit = lambda record: failures.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("redlock_fast").addHandler(lost)
    ended = threading.Event()
    with FastRedlock(
        urls,
        ttl=60.0,
        engine=engine,
        node_timeout=node_timeout,
        socket_timeout=socket_timeout,
        check_masters="off",
    ) as client:
        client.connect(timeout=60.0)

        def cycles(name: str) -> None:
            while not ended.is_set():
                try:
                    lock = client.lock(name)
                    if not lock.acquire(blocking=False):
                        failures.append("not acquired")
                        continue
                    lock.extend()
                    if not lock.release():
                        failures.append("not released")
                except RedlockError as error:
                    failures.append(str(error))

        workers = [threading.Thread(target=cycles, args=[f"r{number}"]) for number in range(threads)]
        for worker in workers:
            worker.start()
        print("running", flush=True)
        sys.stdin.read()
        ended.set()
        for worker in workers:
            worker.join()
    print(json.dumps(failures))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
