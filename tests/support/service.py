"""A service that was written against redlock-py, and its tests. Run with the masters' ports as arguments.

The test that runs it changes one line, the import, and nothing else.
"""

import contextlib
import sys
import threading
import time

from redlock import Lock, MultipleRedlockException, Redlock


class Invoices:
    """Sends each invoice once, however many of us there are."""

    def __init__(self, masters):
        self.locks = Redlock(masters, retry_count=2, retry_delay=0.05)
        self.sent = []

    def send(self, number, work=lambda: None):
        try:
            lock = self.locks.lock(f"invoice:{number}", 10000)
        except MultipleRedlockException:
            return "later"
        if not lock:
            return "busy"
        try:
            if number in self.sent:
                return "sent before"
            work()
            self.sent.append(number)
            return "sent"
        finally:
            self.locks.unlock(lock)


def test_an_invoice_is_sent_once(masters):
    service = Invoices(masters)
    assert service.send(1) == "sent"
    assert service.send(1) == "sent before"
    assert service.send(2) == "sent"
    assert service.sent == [1, 2]


def test_another_one_is_busy_with_it(masters):
    service, another = Invoices(masters), Invoices(masters)
    answers = []
    assert service.send(3, lambda: answers.append(another.send(3))) == "sent"
    assert answers == ["busy"]
    assert another.send(3) == "sent"


def test_many_at_once(masters):
    service = Invoices(masters)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(service.send(4))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert service.sent in ([4], [])


def test_what_fails_gives_its_lock_back(masters):
    def fail():
        raise ZeroDivisionError

    service = Invoices(masters)
    with contextlib.suppress(ZeroDivisionError):
        service.send(5, fail)
    assert service.send(5) == "sent"


def test_a_lock_says_what_it_is(masters):
    locks = Redlock(masters)
    lock = locks.lock("named", 5000)
    assert isinstance(lock, Lock)
    assert isinstance(lock, tuple)
    validity, resource, key = lock
    assert 0 < validity <= 5000
    assert isinstance(validity, int)
    assert resource == "named"
    assert len(key) >= 20
    assert locks.lock("named", 5000) is False
    locks.unlock(lock)
    assert locks.unlock(lock) is None


def test_another_client_may_unlock_with_the_key(masters):
    lock = Redlock(masters).lock("handed over", 10000)
    another = Redlock(masters)
    another.unlock(Lock(0, lock.resource, b"another key"))
    assert another.lock("handed over", 1000) is False
    another.unlock(Lock(0, lock.resource, lock.key))
    taken = another.lock("handed over", 10000)
    assert taken
    another.unlock(taken)


def test_a_lock_ends_by_itself(masters):
    locks = Redlock(masters, retry_count=100, retry_delay=0.05)
    began = time.time()
    assert locks.lock("short", 300)
    lock = locks.lock("short", 300)
    assert lock
    assert time.time() - began > 0.1
    locks.unlock(lock)


def test_masters_may_be_given_as_urls(masters):
    locks = Redlock([f"redis://127.0.0.1:{master['port']}" for master in masters])
    lock = locks.lock("by URL", 10000)
    assert lock
    assert Redlock(masters).lock("by URL", 1000) is False
    locks.unlock(lock)


if __name__ == "__main__":
    addresses = [{"host": "127.0.0.1", "port": int(port)} for port in sys.argv[1:]]
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            test(addresses)
            print(name)
