"""Locks in Django: an app with one client for each process, a decorator of views, a middleware and checks.

    INSTALLED_APPS = [..., "redlock_fast.integrations.django"]
    MIDDLEWARE = [..., "redlock_fast.integrations.django.RedlockMiddleware"]
    REDLOCK_FAST = {"masters": ["redis://a", "redis://b", "redis://c"], "timeout": 2.0}

    from redlock_fast.integrations.django import synchronized

    @synchronized("orders:{order_id}")
    def ship(request, order_id): ...

``REDLOCK_FAST`` has ``masters`` and the settings of FastRedlock, in seconds. See docs/recipes/django.md.
"""

from ...errors import needs

with needs("django", "django>=4.2"):
    from .clients import async_client, client
    from .middleware import RedlockMiddleware
    from .views import synchronized

__all__ = ["RedlockMiddleware", "async_client", "client", "synchronized"]
