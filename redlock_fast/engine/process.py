"""The number of this process, which changes with every fork.

Python runs the hooks of ``os.register_at_fork`` for its own forks only. uWSGI and other programs fork in C.
So what belongs to one process is kept with this number, which is compared before it is used. Compiled code
uses ``src/process.pxd``, which counts forks in C, because a system call for each comparison would cost more.
"""

from __future__ import annotations

import os


def number() -> int:
    return os.getpid()


def expect_fork() -> bool:
    """Whether the interpreter will be whole in the children that another program forks in C from now on.

    Compiled code takes the GIL before such a fork, and in the child it drops the threads of the parent, as
    os.fork does. Python has no hook for that.
    """
    return False
