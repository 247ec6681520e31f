"""The tests of locks on real masters, on masters in memory: the same functions, so the same assertions.

Catches: a master in memory that pushes no change, keeps no order, or executes a script in another way.
"""

from __future__ import annotations

import pytest
from real.locks import test_every_kind, test_fair, test_rwlock, test_semaphore
from real.locks.test_fair import patient, wait  # noqa: F401  # fixtures
from real.locks.test_rwlock import long_intents  # noqa: F401

pytestmark = pytest.mark.usefixtures("all_masters")

for module in (test_every_kind, test_fair, test_rwlock, test_semaphore):
    subject = module.__name__.rpartition("test_")[2]
    for name, test in vars(module).items():
        if name.startswith("test_"):
            globals()[f"test_{subject}_{name[5:]}"] = test
