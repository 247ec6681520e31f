"""Exit codes, as of flock(1), sysexits.h and shells."""

#: A check failed; of ``exec``: another client holds the lock (``--conflict-exit-code`` chooses another code).
FAILED = TAKEN = 1
#: sysexits.h: bad arguments or settings; too few masters; a bug in this package; the output cannot be
#: written; try again later.
USAGE, UNAVAILABLE, INTERNAL, NOT_WRITTEN, LOST = 64, 69, 70, 74, 75
#: Of ``masters``: clients have to change their step first, so the same command may be allowed later.
NOT_YET = LOST
#: As of shells: the command cannot be executed; it was not found; signal N ended it: 128 + N.
NOT_EXECUTABLE, NOT_FOUND, SIGNALLED = 126, 127, 128
INTERRUPTED, NOT_READ = SIGNALLED + 2, SIGNALLED + 13
