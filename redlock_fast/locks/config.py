"""Checks of settings and arguments: all without I/O. A bad value is a ConfigError that names the argument."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, ParamSpec, TypeVar

from ..algorithm.quorum import Retry
from ..engine.contract import MAX_MASTERS
from ..errors import ConfigError
from ..masters.address import Target, target

P = ParamSpec("P")
Options = TypeVar("Options", bound=Mapping[str, object])

#: Characters.
MAX_LABEL = 64

#: The largest integer of which all smaller ones are floats, too.
MAX_INTEGER = 1 << 53


class ClientDefault(Enum):
    """The type of ``CLIENT_DEFAULT``, the value of a lock's option that the caller left to the client."""

    CLIENT_DEFAULT = "the client's default"

    def __repr__(self) -> str:
        return self.name


CLIENT_DEFAULT: Final = ClientDefault.CLIENT_DEFAULT


def check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r}")
    return value


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:  # a comparison with an array has no truth
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def check_label(label: Any) -> str:
    """``label`` of measurements. Raises ConfigError unless it is short, printable text, or empty."""
    if not isinstance(label, str) or len(label) > MAX_LABEL or not label.isprintable():
        raise ConfigError(
            f"label must be a str of at most {MAX_LABEL} printable characters, not {label!r:.100}"
        )
    return label


def check_hold(max_hold: Any) -> float:
    """``max_hold`` in seconds, with infinity for None."""
    return math.inf if max_hold is None else number("max_hold", max_hold, above=0.0)


def number(
    name: str, value: Any, *, low: float = 0.0, above: float | None = None, high: float = math.inf
) -> float:
    """``value`` as a float within the range; ConfigError names the argument otherwise."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    enough = is_number and (value >= low if above is None else value > above)  # not a NaN
    if not (enough and value <= high and value < math.inf) or _is_huge(value):
        raise _bad_number(name, value, is_number, low, above, high)
    return float(value)


def _bad_number(
    name: str, value: Any, is_number: bool, low: float, above: float | None, high: float
) -> ConfigError:
    allowed = f"at least {low:g}" if above is None else f"more than {above:g}"
    if high < math.inf:
        allowed += f" and at most {high:g}"
    if not is_number:
        return ConfigError(f"{name} must be an int or a float, {allowed}, not {value!r}")
    if _is_huge(value):
        return ConfigError(f"{name} must be {allowed}, and no integer of {value.bit_length()} bits")
    if not math.isfinite(value):
        return ConfigError(f"{name} must be a finite number, {allowed}, not {value!r}")
    return ConfigError(f"{name} must be {allowed}, not {value!r}")


def _is_huge(value: float) -> bool:
    return isinstance(value, int) and abs(value) > MAX_INTEGER


def check_timeout(timeout: float | None) -> float | None:
    """Seconds to wait; None for no end, which -1, None and infinity mean. Raises ConfigError."""
    if timeout is None or (isinstance(timeout, (int, float)) and timeout in (-1, math.inf)):
        return None
    return number("timeout", timeout, low=0.0)


def check_retry(retry: Any) -> Retry:
    if not isinstance(retry, Retry):
        raise ConfigError(f"retry must be a Retry, not {type(retry).__name__}")
    number("retry.min_delay", retry.min_delay, low=0.0)
    number("retry.max_delay", retry.max_delay, low=retry.min_delay)
    check_limit("retry.max_attempts", retry.max_attempts, low=1)
    return retry


def check_integer(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return value


def check_limit(name: str, limit: Any, *, low: int) -> int | None:
    """``limit``, a number of times, or None for no limit. Raises ConfigError."""
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= low):
        return limit
    raise ConfigError(f"{name} must be None or an integer of at least {low}, not {limit!r}")


def check_lists(masters: Any, joint_with: Any) -> list[list[Target]]:
    """The masters of a client: one list, or two if ``joint_with`` is another list. Raises ConfigError."""
    lists = [check_masters(masters)]
    if joint_with is None:
        return lists
    if lists[0][0].topology is not None:
        raise ConfigError(
            "joint_with: a Cluster is the only master of a client, and its masters do not change"
        )
    lists.append(check_joint(lists[0], joint_with, "joint_with"))
    count = len({one.address for masters in lists for one in masters})
    if count > MAX_MASTERS:
        raise ConfigError(f"masters and joint_with are {count} masters, and more than {MAX_MASTERS}")
    same = {one.address for one in lists[0]} == {one.address for one in lists[1]}
    return lists[:1] if same else lists


def check_joint(first: Sequence[Target], masters: Any, argument: str) -> list[Target]:
    """``masters`` as ``check_masters`` does it, besides the list ``first``: one database of each server."""
    known = {one.address: one for one in first}
    second = check_masters(masters, argument)
    for one in second:
        before = known.setdefault(one.address, one)
        if before.database != one.database:
            raise ConfigError(f"{argument}: {one.name} and {before.name} are one server with one vote")
    return second


def check_masters(masters: Any, argument: str = "masters") -> list[Target]:
    if isinstance(masters, (str, bytes)) or not isinstance(masters, Sequence):
        raise ConfigError(f"{argument} must be a list of URLs or clients, not {type(masters).__name__}")
    if not 1 <= len(masters) <= MAX_MASTERS:
        what = f"a list of 1 to {MAX_MASTERS} URLs or clients (best 3 or 5)"
        raise ConfigError(f"{argument} must be {what}, not {len(masters)}")
    targets = [target(master) for master in masters]
    seen: dict[Any, str] = {}
    for one in targets:
        if one.address in seen:
            raise ConfigError(f"{argument}: {one.name} and {seen[one.address]} are one server with one vote")
        seen[one.address] = one.name
        if one.topology is not None and len(targets) > 1:
            raise ConfigError(
                f"{argument}: a Cluster is the only master of a client, because its primaries are not "
                "independent masters: give one URL, redis+cluster://host:port,host:port"
            )
    return targets


def check_for_cluster(targets: Sequence[Target], **modes: str) -> bool:
    """Whether the only master is a Cluster. Raises ConfigError for ``modes`` that it cannot have."""
    cluster = targets[0].topology is not None
    reasons = {
        ("restart_guard", "marker"): "its key and that of a lock belong to different slots",
        ("check_masters", "strict"): "the nodes of a Cluster say themselves which primaries there are",
    }
    for mode, why in reasons.items():
        if cluster and mode in modes.items():
            raise ConfigError(f"{mode[0]}={mode[1]!r} does not go with a Cluster: {why}")
    return cluster


def takes_only(argument: str, what: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorator of an ``__init__`` that takes one argument by position, ``argument``.

    For a call without it, or with more arguments by position, it raises a ConfigError. Python's TypeError
    would name the ``__init__`` of a base class.
    """

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(init)
        def checked(*args: P.args, **options: P.kwargs) -> None:
            name, given = type(args[0]).__name__, len(args) - 1 + (argument in options)
            if not given:
                raise ConfigError(f"{name}() needs the argument {argument}: {what}")
            if given > 1:
                raise ConfigError(f"{name}() takes one argument {argument}, {what}, and not {given}")
            init(*args, **options)

        return checked

    return decorate


def refuse_unknown(
    what: str, unknown: Collection[str], *known: object, without: Collection[str] = ()
) -> None:
    """Raise ConfigError if there are ``unknown`` options. ``known``: have the names of all options."""
    if unknown:
        raise ConfigError(
            f"{what} has no option {', '.join(map(repr, unknown))}; "
            f"it has: {', '.join(_names(known, without))}"
        )


def check_options(
    options: Options, method: Callable[..., object], *known: type, without: Collection[str] = ()
) -> Options:
    """``options``, which are those of ``method``. Raises ConfigError for one that it does not have.

    ``known``: the types of the options. ``without``: those of them that ``method`` refuses by itself.
    """
    if options:  # most calls have none
        names = {*_names((method, *known)), *without}
        unknown = [name for name in options if name not in names]
        refuse_unknown(f"{method.__name__}()", unknown, method, *known, without=without)
    return options


def _names(known: Iterable[Any], without: Collection[str] = ()) -> list[str]:
    """The names of the parameters and options of ``known``."""
    internal = ("return", "unknown", "more", "options", *without)
    return [name for one in known for name in one.__annotations__ if name not in internal]


def check_kind_options(options: Options, method: Callable[..., object], *known: type) -> Options:
    """``check_options`` for a kind of lock, with the reasons against options of the plain lock."""
    if "fencing" in options:
        raise ConfigError("fencing is an option of lock() only: on other kinds no single key decides")
    if "fair" in options:
        raise ConfigError("fair is an option of lock() only: the other kinds have no fair variant")
    if "token" in options:
        raise ConfigError("token is an option of lock() only: other kinds have more than a token on masters")
    return check_options(options, method, *known)
