"""The app: ``manage.py check`` also checks the settings of locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Django has no types, and the type of a public base class must be known
    AppConfig = object
else:
    from django.apps import AppConfig


class RedlockConfig(AppConfig):
    """For ``INSTALLED_APPS``, as ``"redlock_fast.integrations.django"``. It has no models."""

    name: str = "redlock_fast.integrations.django"
    label: str = "redlock_fast"
    verbose_name: str = "redlock-fast"

    def ready(self) -> None:
        """Register the checks. No I/O."""
        from . import checks  # noqa: F401
