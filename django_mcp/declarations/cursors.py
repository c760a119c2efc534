"""Sealed values: signed and encrypted text that a client stores for the server, such as a cursor.

``unseal`` accepts a value only for the purpose that it was sealed for. Keys come from
``SECRET_KEY`` and ``SECRET_KEY_FALLBACKS``, so any worker can unseal what another one sealed.
Values are encrypted and not only signed, because the position of a page may contain columns that
the client may not see.
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

MAX_SEALED_LENGTH = 8_192  # characters, unless the caller passes another limit
NONCE_BYTES = 16


def digest(*parts: Any) -> str:
    """Return a short hash of JSON values, for the purpose of a seal."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def seal(value: Any, purpose: str) -> str:
    """Return the JSON ``value`` as text that only ``unseal`` with the same purpose can read."""
    text = json.dumps(value, separators=(",", ":")).encode()
    # The nonce is derived from the value, so that equal positions have equal cursors. Only equal
    # values share a nonce, so no key stream encrypts two different values.
    nonce = salted_hmac(f"django_mcp:nonce:{purpose}", text, algorithm="sha256").digest()[
        :NONCE_BYTES
    ]
    encrypted = _encrypted(zlib.compress(text), nonce, purpose, settings.SECRET_KEY)
    return _signer(purpose).sign(urlsafe_b64encode(nonce + encrypted).decode())


def unseal(
    sealed: Any, purpose: str, *, seconds: int | None = None, limit: int = MAX_SEALED_LENGTH
) -> Any:
    """Return what was sealed for ``purpose``, at most ``seconds`` ago. Raise ``ValueError``."""
    if not isinstance(sealed, str) or len(sealed) > limit:
        raise ValueError("This value was not issued by this server.")
    try:
        return _decrypted(_signer(purpose).unsign(sealed, max_age=seconds), purpose)
    except signing.SignatureExpired:
        raise ValueError("This value has expired.") from None
    except Exception:  # a forged text may fail at any step
        raise ValueError("This value was not issued by this server.") from None


def _signer(purpose: str) -> signing.TimestampSigner:
    return signing.TimestampSigner(salt=f"django_mcp:{purpose}")


def _decrypted(text: str, purpose: str) -> Any:
    """Return the decrypted value. Raise ``ValueError`` if no key decrypts it.

    The checksum of zlib tells which of the keys is the right one.
    """
    raw = urlsafe_b64decode(text)
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        try:
            return json.loads(
                zlib.decompress(_encrypted(raw[NONCE_BYTES:], raw[:NONCE_BYTES], purpose, key))
            )
        except (zlib.error, ValueError):
            continue
    raise ValueError("No key decrypts this value.")


def _encrypted(data: bytes, nonce: bytes, purpose: str, secret: Any) -> bytes:
    """Return ``data`` encrypted, or decrypted if it is encrypted.

    It is XORed with a SHAKE-256 stream that depends on key, purpose and nonce. The signature
    protects the integrity. Python's standard library has no authenticated encryption.
    """
    salt = f"django_mcp:veil:{purpose}"
    key = salted_hmac(salt, nonce.hex(), secret=secret, algorithm="sha256").digest()
    stream = hashlib.shake_256(key).digest(len(data))
    return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))
