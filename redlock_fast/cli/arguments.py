"""The arguments of the command line, and their help."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from .. import __version__
from ..wire.text import clean, without_logins
from . import exit_codes
from .output import fitted

N = TypeVar("N", int, float)

SHELLS = ("bash", "zsh", "fish")

#: The commands that run another command.
USAGES = {name: f"redlock-fast {name} NAME [options] -- COMMAND [ARGUMENT ...]" for name in ("exec", "lead")}

CODES = """\
  64        wrong usage or settings
  69        no quorum of masters could be used
  70        an error of redlock-fast, with a traceback
"""

CODES_OF_LEAD = "".join(line for line in CODES.splitlines(keepends=True) if "69 " not in line)

EPILOG = """\
examples:
  redlock-fast demo
  redlock-fast status --masters redis://a.lan,redis://b.lan,redis://c.lan
  redlock-fast exec nightly-report -- /usr/local/bin/report --all

Each command has options, examples and exit codes: redlock-fast COMMAND --help
"""


def _epilog(examples: str, good: str, failed: str = "", later: str = "") -> str:
    lines = "".join(f"  redlock-fast {example}\n" for example in examples.split("\n"))
    codes = f"  0         {good}\n" + (f"  1         {failed}\n" if failed else "") + CODES
    codes += f"  75        {later}\n" if later else ""
    return f"examples:\n{lines}\nexit codes:\n{codes}  130       Ctrl-C\n"


#: The description of each command, and its examples and exit codes.
COMMANDS = {
    "exec": (
        "run a command while holding a lock, as flock(1) does",
        f"""\
examples:
  redlock-fast exec nightly-report -E 0 -- /usr/local/bin/report --all
  redlock-fast exec importer --timeout -1 --grace 5 -- /usr/local/bin/importer

exit codes: that of COMMAND, or
  1         another client holds the lock (see --conflict-exit-code)
{CODES}\
  75        the lock was lost, and COMMAND was ended
  126, 127  COMMAND cannot be executed; there is no such command
  128 + N   signal N ended COMMAND, or the wait for the lock
""",
    ),
    "lead": (
        "run a command while this process leads: one process of the fleet",
        f"""\
examples:
  redlock-fast lead scheduler -- /usr/local/bin/scheduler
  redlock-fast lead importer --ttl 10 --grace 2 -v -- /usr/local/bin/importer

After a loss COMMAND is ended, and this process campaigns again.

exit codes: that of COMMAND when it ends by itself, or
{CODES_OF_LEAD}\
  126, 127  COMMAND cannot be executed; there is no such command
  128 + N   signal N ended COMMAND, or the campaign
""",
    ),
    "status": (
        "show each master, and whether a quorum grants a lock",
        _epilog(
            "status\nstatus --json",
            "a quorum granted a lock",
            "a quorum refused a lock that is free",
            "clients that ran before give restarted masters no vote",
        ),
    ),
    "locks": (
        "list the held locks, with the time left on each master",
        _epilog("locks\nlocks 'orders:*' --json", "a quorum of masters answered"),
    ),
    "top": (
        "show masters and locks live in the terminal; q ends it",
        _epilog(
            "top\ntop 'orders:*' --interval 0.5\ntop --once --json",
            "it was ended, or --once: a quorum of masters answered",
        ),
    ),
    "break": (
        "take a lock from its holder, after a confirmation",
        _epilog("break orders:42\nbreak orders:42 --yes --json", "the lock was broken", "nothing was broken"),
    ),
    "masters": (
        "change the set of masters while clients run",
        f"""\
examples:
  redlock-fast masters plan --from redis://a --to redis://a,redis://b,redis://c
  redlock-fast masters start --from ... --to ...
  redlock-fast masters finish --phase 1 --from ... --to ...
  redlock-fast masters restore --from ...

exit codes:
  0         done; for plan and status: the next command is allowed
  1         refused: another command must be given first
{CODES}\
  75        not yet: clients have to change their list first
  130       Ctrl-C; the command can be given again
""",
    ),
    "bench": (
        "measure how fast locks are with your masters",
        _epilog("bench\nbench --threads 64 --seconds 5", "all locks were granted", "a lock was not granted"),
    ),
    "demo": (
        "start masters on this machine, contend for a lock, check that no update is lost",
        _epilog("demo\ndemo --seconds 10 --workers 8", "all checks passed", "a check failed"),
    ),
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options in ``argv``. Exits with 0 after --help and --version, with 64 after a wrong argument."""
    own, command = _split(list(argv))
    parser, parsers = _parser()
    options, unknown = parser.parse_known_args(own)
    if options.command in USAGES:
        if not command:
            parsers[options.command].error("no COMMAND: put it after --")
        options.argv = command
    if unknown:
        parsers[options.command].error(f"unknown arguments: {' '.join(unknown)}")
    return options


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """The arguments of ``exec`` or ``lead``, and after the first ``--`` those of the command, unchanged."""
    if not argv or argv[0] not in USAGES or "--" not in argv:
        return argv, []
    end = argv.index("--")
    return argv[:end], argv[end + 1 :]


class Parser(argparse.ArgumentParser):
    """Errors exit with ``USAGE``, and repeat no password."""

    def error(self, message: str) -> NoReturn:
        self.print_usage()
        line = f"{self.prog}: error: {clean(without_logins(message), 500)}"
        self.exit(exit_codes.USAGE, f"{fitted(line)}\n")

    def print_usage(self, file: object = None) -> None:
        self._print_message(self.format_usage(), None)  # stderr: stdout has only results


class Completion(argparse.Action):
    """Prints the script of a shell, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *arguments: Any) -> NoReturn:
        _, shell, _ = arguments
        try:
            import shtab
        except ImportError:
            parser.error("--print-completion needs shtab: pip install 'redlock-fast[cli]'")
        print(shtab.complete(parser, shell))
        parser.exit()


def _parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and those of the commands."""
    layout = argparse.RawDescriptionHelpFormatter
    text = "Distributed locks over N independent Redis or Valkey masters."
    parser = Parser(prog="redlock-fast", description=text, epilog=EPILOG, formatter_class=layout)
    parser.add_argument("--version", action="version", version=f"redlock-fast {__version__}")
    completion = "print what completes commands and options in a shell; needs shtab"
    parser.add_argument("--print-completion", action=Completion, choices=SHELLS, help=completion)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")

    def add(name: str, *options: Callable[[argparse.ArgumentParser], None]) -> None:
        text, epilog = COMMANDS[name]
        added = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=epilog,
            usage=USAGES.get(name),
            formatter_class=layout,
        )
        for option in options:
            option(added)

    add("exec", _masters, _command, _exec)
    add("lead", _masters, _command, _lead)
    add("status", _masters, _json)
    add("locks", _masters, _json, _names, _locks)
    add("top", _masters, _json, _names, _top)
    add("break", _masters, _json, _break)
    add("masters", _change, _json)
    add("bench", _masters, _json, _bench)
    add("demo", _json, _demo)
    return parser, commands.choices


def _masters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("masters")
    urls = "URLs of the masters (default: $REDLOCK_FAST_MASTERS, which hides passwords from ps)"
    group.add_argument("--masters", metavar="URL,URL", help=urls)
    _file_and_prefix(group)


def _file_and_prefix(group: argparse._ArgumentGroup, more: str = "") -> None:
    file = "TOML file with a section [redlock-fast] (default: $REDLOCK_FAST_CONFIG)"
    group.add_argument("--config", metavar="FILE", help=file + more)
    prefix = "text before each lock name on the masters (default: none)"
    group.add_argument("--key-prefix", metavar="TEXT", help=prefix)


def _change(parser: argparse.ArgumentParser) -> None:
    actions = {
        "plan": "check both lists and show the next steps",
        "start": "begin: clients may use the old list, or both",
        "status": "show the phase and the clients of each step",
        "finish": "end the phase: to phase 2, then to the new list only",
        "abort": "go back towards the old list",
        "restore": "write the record back to masters of the present list that lost it",
    }
    verbs = "".join(f"\n  {name:9}{what}" for name, what in actions.items())
    parser.description = f"{parser.description}\n\nactions:{verbs}"
    parser.add_argument("action", choices=list(actions), metavar="|".join(actions), help="see above")
    number = "with finish or abort: the phase to end (default: the present one); no effect if it has ended"
    parser.add_argument("--phase", type=int, choices=[1, 2], help=number)
    sure = "with restore: do not ask; with abort: no other change of these masters goes on"
    parser.add_argument("--yes", action="store_true", help=sure)
    group = parser.add_argument_group("masters")
    old = "URLs of the present masters (default: $REDLOCK_FAST_MASTERS, or the file)"
    group.add_argument("--from", dest="masters", metavar="URL,URL", help=old)
    new = "URLs of the new masters (default: $REDLOCK_FAST_NEW_MASTERS)"
    group.add_argument("--to", metavar="URL,URL", help=new)
    _file_and_prefix(group, "; max_ttl is taken from it")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _number(
    parser: argparse.ArgumentParser, *flags: str, help: str, default: float, metavar: str, type: Any
) -> None:
    """An option with a number, and its default in the help."""
    text = f"{help} (default: {default:g})"
    parser.add_argument(*flags, type=type, default=default, metavar=metavar, help=text)


def _command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the lock or of the leadership")
    ttl = "lease, renewed while COMMAND runs (default: 30)"
    parser.add_argument("--ttl", type=_seconds, metavar="SECONDS", help=ttl)
    verbose = "print why COMMAND did not run, and log connections and faults"
    parser.add_argument("-v", "--verbose", action="store_true", help=verbose)


def _exec(parser: argparse.ArgumentParser) -> None:
    wait = "time to wait for the lock; 0 gives up if another client holds it, -1 waits without limit"
    _number(parser, "--timeout", type=_timeout, default=0.0, metavar="SECONDS", help=wait)
    grace = "time between SIGTERM and SIGKILL after the lock is lost"
    _number(parser, "--grace", type=_seconds, default=10.0, metavar="SECONDS", help=grace)
    fencing = "set $REDLOCK_FAST_TOKEN for COMMAND to a number that rises with each holder"
    parser.add_argument("--fencing", action="store_true", help=fencing)
    code = "exit code if another client holds the lock"
    flags = "-E", "--conflict-exit-code"
    _number(parser, *flags, type=_code, default=exit_codes.TAKEN, metavar="N", help=code)


def _lead(parser: argparse.ArgumentParser) -> None:
    grace = "time between SIGTERM and SIGKILL after a loss (default: a quarter of the lease)"
    parser.add_argument("--grace", type=_seconds, metavar="SECONDS", help=grace)


def _names(parser: argparse.ArgumentParser) -> None:
    names = "lock names to list; * stands for any text (default: *)"
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help=names)
    _number(parser, "--limit", type=_count, default=1000, metavar="N", help="list at most N names")


def _locks(parser: argparse.ArgumentParser) -> None:
    _number(parser, "--timeout", type=_seconds, default=10.0, metavar="SECONDS", help="limit for the scan")
    again = "repeat the list in the terminal, every SECONDS (default: 2); q ends it"
    parser.add_argument("--watch", type=_seconds, nargs="?", const=2.0, metavar="SECONDS", help=again)


def _top(parser: argparse.ArgumentParser) -> None:
    pause = "time between two frames; each scans all keys of each master"
    _number(parser, "--interval", type=_seconds, default=2.0, metavar="SECONDS", help=pause)
    parser.add_argument("--once", action="store_true", help="print one frame and end; needs no terminal")


def _break(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the lock, the read-write lock or the semaphore")
    parser.add_argument("--yes", action="store_true", help="do not ask for a confirmation")
    wait = "after the break, wait until the lease of the former holder has ended"
    parser.add_argument("--wait", action="store_true", help=wait)
    _number(parser, "--timeout", type=_seconds, default=5.0, metavar="SECONDS", help="limit for each step")


def _bench(parser: argparse.ArgumentParser) -> None:
    parts = "time for each of the three measurements"
    _number(parser, "--seconds", type=_short, default=2.0, metavar="SECONDS", help=parts)
    for flag, default, callers in (("--threads", 16, "threads"), ("--tasks", 64, "asyncio tasks")):
        text = f"{callers} that lock at the same time"
        _number(parser, flag, type=_count, default=default, metavar="N", help=text)


def _demo(parser: argparse.ArgumentParser) -> None:
    workers = "processes that contend for the lock"
    _number(parser, "--masters", type=_count, default=5, metavar="N", help="servers to start")
    _number(parser, "--workers", type=_count, default=4, metavar="N", help=workers)
    _number(parser, "--seconds", type=_seconds, default=5.0, metavar="SECONDS", help="time to contend")
    engines = "auto", "native", "python"
    engine = "engine of the workers (default: auto)"
    parser.add_argument("--engine", choices=engines, default="auto", help=engine)
    server = "auto, valkey, redis, or the path of a server binary (default: auto)"
    parser.add_argument("--server", default="auto", metavar="SERVER", help=server)


# --- values --------------------------------------------------------------------------------------


def _parsed(text: str, kind: type[N], what: str) -> N:
    try:
        return kind(text)
    except ValueError:  # argparse would show the name of a function
        raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}") from None


def _count(text: str) -> int:
    number = _parsed(text, int, "an integer")
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _seconds(text: str, highest: float = 86_400) -> float:
    number = _parsed(text, float, "a number")
    if not 0.1 <= number <= highest:
        raise argparse.ArgumentTypeError(f"must be from 0.1 to {highest:g}")
    return number


def _short(text: str) -> float:
    return _seconds(text, 60)


def _timeout(text: str) -> float:
    number = _parsed(text, float, "a number")
    if number == -1:
        return math.inf
    if not number >= 0:
        raise argparse.ArgumentTypeError("must be 0 or more, or -1 for no limit")
    return number


def _code(text: str) -> int:
    number = _parsed(text, int, "an integer")
    if not 0 <= number <= 255:
        raise argparse.ArgumentTypeError("must be from 0 to 255")
    return number
