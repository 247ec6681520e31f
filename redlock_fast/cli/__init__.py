"""The ``redlock-fast`` command. Everything heavy is imported by the subcommand that needs it."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence

from ..errors import ConfigError, RedlockError
from . import exit_codes
from .arguments import parse
from .output import discard_stdout, is_write_error, open_closed_streams, print_error

#: The module of each command: its function ``run`` takes the options and returns the exit code.
MODULES = {
    "exec": ".execute",
    "lead": ".lead",
    "status": ".status",
    "locks": ".locks",
    "top": ".top",
    "break": ".break_lock",
    "masters": ".masters.run",
    "bench": ".bench",
    "demo": ".demo.run",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, see :mod:`.exit_codes`."""
    open_closed_streams()
    options = parse(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of locks may have what its encoding has not
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = importlib.import_module(MODULES[options.command], __name__).run(options)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        print_error(str(error))
        return exit_codes.USAGE
    except RedlockError as error:
        print_error(str(error))
        return exit_codes.UNAVAILABLE
    except KeyboardInterrupt:
        print(file=sys.stderr)
        print_error("interrupted")
        return exit_codes.INTERRUPTED
    except BrokenPipeError:  # as in `redlock-fast locks | head`
        discard_stdout()
        return exit_codes.NOT_READ
    except Exception as error:  # Python would exit with 1, which means that the lock is taken
        if is_write_error(error):
            discard_stdout()
            print_error(f"cannot write the output: {error.strerror}")
            return exit_codes.NOT_WRITTEN
        import traceback

        traceback.print_exc()
        return exit_codes.INTERNAL
