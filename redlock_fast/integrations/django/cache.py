"""The client class for django-redis: ``cache.lock()`` is over the quorum of ``settings.REDLOCK_FAST``.

    CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://cache:6379",
            "OPTIONS": {"REDIS_CLIENT_CLASS": "redlock_fast.integrations.django.cache.QuorumRedis"},
        }
    }
"""

from ...compat.redis_py import client_class
from .clients import client_settings

#: A ``redis.Redis`` for the server of the cache. Only its ``lock()`` uses the masters.
QuorumRedis: type = client_class(**client_settings())
