"""System checks of ``settings.REDLOCK_FAST``. Their texts have no passwords.

``manage.py check`` does no I/O. ``manage.py check --deploy`` also connects to the masters.
"""

from __future__ import annotations

import time
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register

from ...errors import ConfigError
from .clients import SETTING, client


@register("redlock_fast")
def check_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """The settings: E001 an error, W001 fewer than three masters, W002 an even number, W003 no timeout."""
    try:
        made = client()
    except (ConfigError, TypeError) as error:
        known = isinstance(error, ConfigError)
        text = str(error) if known else f"settings.{SETTING} has a key that is no text"
        return [Error(text, id="redlock_fast.E001")]
    masters = len(made.health())
    found: list[CheckMessage] = []
    if masters < 3:
        hint = "Use three or five masters on different machines."
        text = f"{masters} of {masters} masters must be up for a lock."
        found.append(Warning(text, hint=hint, id="redlock_fast.W001"))
    if masters % 2 == 0:
        hint = "Use an odd number of masters."
        text = f"{masters} masters tolerate no more failures than {masters - 1}."
        found.append(Warning(text, hint=hint, id="redlock_fast.W002"))
    if made._core.timeout is None:
        text = f"settings.{SETTING} has no timeout: a request waits as long as another one holds its lock."
        hint = f'Set settings.{SETTING}["timeout"] to some seconds, less than the server in front waits.'
        found.append(Warning(text, hint=hint, id="redlock_fast.W003"))
    return found


@register("redlock_fast", deploy=True)
def check_masters(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """The masters: E002 no quorum within ``connect_timeout``, W004 a master that is not connected."""
    try:
        made = client()
    except (ConfigError, TypeError):
        return []  # check_settings reports it
    end = time.monotonic() + made._core.connect_timeout
    found: list[CheckMessage] = []
    if not made.connect():
        text = "No quorum of masters can be reached: no lock is granted."
        found.append(Error(text, id="redlock_fast.E002"))
    made._core.masters.wait_until_tried(max(0.0, end - time.monotonic()))
    for one in made.health():
        if one.state != "connected":
            text = f"Master {one.name} is {one.state}. {one.error}".strip()
            found.append(Warning(text, id="redlock_fast.W004"))
    return found
