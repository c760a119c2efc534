"""
Sealed values: what a client carries for the server, and cannot read a meaning into or change.

Rule: a seal names its purpose, and opens for no other. Keys come from
SECRET_KEY and its fallbacks, so that any worker opens what another sealed.
What is sealed is veiled before it is signed: a position may be of a row, or of
a column, that its client does not see.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from django.conf import settings
from django.core import signing
from django.utils.crypto import salted_hmac

MAX_SEALED_LENGTH = 8_192  # characters, where a caller names no other limit
NONCE_BYTES = 16  # bytes, made of the value: one position is one cursor


def digest(*parts: Any) -> str:
    """A short name of some JSON values, to bind a seal to."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def seal(value: Any, purpose: str) -> str:
    """``value``, JSON, as text that only ``opened`` with the same purpose gives back."""
    text = json.dumps(value, separators=(",", ":")).encode()
    nonce = salted_hmac(f"django_mcp:nonce:{purpose}", text, algorithm="sha256").digest()[
        :NONCE_BYTES
    ]
    veiled = _veil(zlib.compress(text), nonce, purpose, settings.SECRET_KEY)
    return _signer(purpose).sign(urlsafe_b64encode(nonce + veiled).decode())


def opened(
    sealed: Any, purpose: str, *, seconds: int | None = None, limit: int = MAX_SEALED_LENGTH
) -> Any:
    """What was sealed for ``purpose``, at most ``seconds`` ago. Raises ``ValueError``."""
    if not isinstance(sealed, str) or len(sealed) > limit:
        raise ValueError("This was not issued here.")
    try:
        return _unveiled(_signer(purpose).unsign(sealed, max_age=seconds), purpose)
    except signing.SignatureExpired:
        raise ValueError("This has expired.") from None
    except Exception:  # whatever a forged text breaks, it is forged
        raise ValueError("This was not issued here.") from None


def _signer(purpose: str) -> signing.TimestampSigner:
    return signing.TimestampSigner(salt=f"django_mcp:{purpose}")


def _unveiled(text: str, purpose: str) -> Any:
    """What was veiled, by whichever key it was: its checksum tells. Raises ``ValueError``."""
    raw = urlsafe_b64decode(text)
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        try:
            return json.loads(
                zlib.decompress(_veil(raw[NONCE_BYTES:], raw[:NONCE_BYTES], purpose, key))
            )
        except (zlib.error, ValueError):
            continue
    raise ValueError("No key opens this.")


def _veil(data: bytes, nonce: bytes, purpose: str, secret: Any) -> bytes:
    """``data`` under a stream that only the key and the nonce give; twice is ``data`` again."""
    salt = f"django_mcp:veil:{purpose}"
    key = salted_hmac(salt, nonce.hex(), secret=secret, algorithm="sha256").digest()
    stream = hashlib.shake_256(key).digest(len(data))
    return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))
