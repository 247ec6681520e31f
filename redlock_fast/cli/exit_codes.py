"""Exit codes: those of flock(1), sysexits.h and the shells, so that nobody has to learn new ones."""

#: A check failed; of ``exec``: others hold the lock (``--conflict-exit-code`` chooses another).
FAILED = TAKEN = 1
#: sysexits.h: bad arguments or settings; too few masters; a bug in this package; try again later.
USAGE, UNAVAILABLE, INTERNAL, LOST = 64, 69, 70, 75
#: As shells say it: the command cannot be executed, or there is none; a signal ended it: 128 + number.
NOT_EXECUTABLE, NOT_FOUND, SIGNALLED = 126, 127, 128
INTERRUPTED, NOT_READ = SIGNALLED + 2, SIGNALLED + 13
