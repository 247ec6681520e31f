"""The client class for django-redis: ``cache.lock()`` is over the quorum of ``settings.REDLOCK_FAST``.

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "redis://cache:6379",
        "OPTIONS": {"REDIS_CLIENT_CLASS": "redlock_fast.integrations.django.cache.QuorumRedis"},
    }
}
"""

import functools
from typing import Any

from ...compat.redis_py import client_class
from .clients import client_settings


@functools.cache
def _quorum_redis() -> type[Any]:
    return client_class(**client_settings())


def __getattr__(name: str) -> type[Any]:
    # QuorumRedis: a redis.Redis for the server of the cache. Only its lock() uses the masters. It is made at
    # its first use, when Django's settings are complete.
    if name != "QuorumRedis":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _quorum_redis()
