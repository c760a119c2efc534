"""What a deployment says beside shop/settings.py; what differs between machines is in shop.env."""

import os

DEBUG = False
SECRET_KEY = os.environ["SECRET_KEY"]  # the same everywhere
ALLOWED_HOSTS = ["shop.example"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")  # nginx.conf always sets it
DJANGO_MCP = {"URL": "https://shop.example"}

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "shop",
        "USER": "shop",
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ["PGHOST"],
        # A look at a session makes no connection, and finds out when one is broken.
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": 5,
            # Who is cut off from the other notices it within ten seconds or so, on this side ...
            "keepalives_idle": 4, "keepalives_interval": 2, "keepalives_count": 2,
            "tcp_user_timeout": 8000,
            # ... and on PostgreSQL's, which then rolls back what a lost worker had begun.
            "options": "-c tcp_keepalives_idle=4 -c tcp_keepalives_interval=2"
            " -c tcp_keepalives_count=2 -c tcp_user_timeout=8000",
        },
    }
}  # fmt: skip

# Without Redis, PostgreSQL rings.
if redis := os.environ.get("REDIS_URL"):
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [redis]},
        }
    }
