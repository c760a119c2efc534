# /srv/shop/shop/deployed.py: what differs from shop/settings.py in production.
# Values that differ between machines are in shop.env.

import os

from .settings import *

DEBUG = False
SECRET_KEY = os.environ["SECRET_KEY"]  # the same on all machines
ALLOWED_HOSTS = ["shop.example"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")  # nginx.conf always sets it
DJANGO_MCP = {**DJANGO_MCP, "URL": "https://shop.example"}  # keeps its other values
STATIC_ROOT = "/srv/shop/static"  # collectstatic writes there, and nginx reads from there

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "shop",
        "USER": "shop",
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ["PGHOST"],
        # A worker has at most max_size connections, and two for wake-ups. Further requests and
        # threads wait for a connection. A connection is checked before it is used again.
        # The pool replaces CONN_MAX_AGE, which stays 0.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            # After an outage of PostgreSQL the next request makes the pool reconnect. Without
            # reconnect_timeout the pool would double the pause after each attempt, up to minutes.
            "pool": {"min_size": 2, "max_size": 24, "timeout": 10, "reconnect_timeout": 5},
            "connect_timeout": 5,
            # TCP keep-alive: detect a broken network within about ten seconds, on this side ...
            "keepalives_idle": 4, "keepalives_interval": 2, "keepalives_count": 2,
            "tcp_user_timeout": 8000,
            # ... and in PostgreSQL, which then rolls back the transactions of a lost worker.
            "options": "-c tcp_keepalives_idle=4 -c tcp_keepalives_interval=2"
            " -c tcp_keepalives_count=2 -c tcp_user_timeout=8000",
        },
    }
}  # fmt: skip

# Without Redis, PostgreSQL sends the wake-ups.
if redis := os.environ.get("REDIS_URL"):
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [redis]},
        }
    }
