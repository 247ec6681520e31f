"""A process that adds to an account under a lock. It stops itself (SIGSTOP) where a pause does harm.

Arguments: database URL, amount, ttl, whether to stop, then the masters' URLs. It prints the rows that its
update changed: 1, or 0 for a stale token.
"""

from __future__ import annotations

import os
import signal
import sys

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from support.accounts import Account

from redlock_fast import FastRedlock, StaleToken
from redlock_fast.integrations.sqlalchemy import fenced_update, written


def main(database: str, amount: str, ttl: str, stops: str, *urls: str) -> None:
    engine = create_engine(database)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    with FastRedlock(urls, node_timeout=5.0, connect_timeout=20.0, check_masters="off") as client:
        lock = client.lock("account:7", float(ttl), fencing=True)
        lock.acquire()
        with Session(engine) as session, session.begin():
            balance = session.get_one(Account, 7).balance
        change = fenced_update(Account.fence, lock.fencing_token).where(Account.id == 7)
        if stops == "stops":
            print("stopped", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            with Session(engine) as session, session.begin():
                print(written(session.execute(change.values(balance=balance + int(amount)))), flush=True)
        except StaleToken:
            print(0, flush=True)
        lock.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
