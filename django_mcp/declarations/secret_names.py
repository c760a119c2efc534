"""Names that look like names of credentials.

There are three lists for three purposes. ``SECRET`` and ``SECRET_COLUMN`` reject a form or a
column, and a false match stops a developer, so they match whole words. ``LOGGED_SECRET`` masks
values in logs, and a false match costs little, so it matches parts of words.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

# Fields that a form must not ask for.
SECRET_WORDS = (
    r"pass(wd|phrase|code)|\w*password|pwd|secrets?|credentials?|api ?keys?"
    r"|(?<!page )(?<!next )tokens?|(auth|access|refresh|session)tokens?"
    r"|(private|access|secret|ssh|encryption|signing) ?keys?"
    r"|(credit ?|debit )?card (number|no)|credit ?card|cv[cv]2?"
    r"|t?otp|pin( code)?|one time code|security code|iban"
)
SECRET = re.compile(rf"\b({SECRET_WORDS})\b")

# The columns that no client may see, whatever a resource declares.
SECRET_COLUMN = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|api_?key|(private|secret)_?key"
    r"|(access|refresh|auth|session)_(token|key))(_hash)?$",
    re.IGNORECASE,
)

# Names whose values are masked in logs. Like Django's SafeExceptionReporterFilter, most of them
# match parts of a name.
# The short ones in the second half are whole words, because "pin" is also a part of "shipping".
LOGGED_SECRET = re.compile(
    r"auth|token|key|secret|pass|signature|cookie|pwd|credential|bearer|csrf|xsrf|sess(ion)? ?id"
    r"|credit ?card|card ?(number|no\b)|(one time|security|recovery|backup) codes?"
    r"|(database|db|redis|broker|cache|amqp|mongo(db)?) ?ur[il]"
    r"|\b(pin|t?otp|dsn|jwt|cv[cv]2?|iban)\b"
)
# Words that contain such a part but are not secrets. They are removed from a name first.
NOT_SECRET = re.compile(
    r"^keys?$|\b((co ?)?author(s|ed|ing|ship)?|authorit(y|ies)"
    r"|(primary|foreign|natural|public|cache|sort|order|row|object|partition|idempotency) ?keys?"
    r"|key(board|word|note|frame|press|stone)s?|(mon|tur|don|joc)keys?|hockey|whiskey"
    r"|pass(enger|age|port)s?|pass(ed|es|ing|ive|ion)|(com|by|sur|over|under|tres|encom)pass"
    r"|(page|next|progress) ?tokens?|token ?(count|limit|usage|type)s?"
    r"|(max|min|total|prompt|completion|input|output|cached|reasoning)( \w+)? ?tokens"
    r"|(?<!secret )key ?ids?|pass(ing)? ?(rate|count)s?|tokeni[sz]\w*"
    r"|secretar(y|ies|iat))\b"
)


def words(name: str) -> str:
    """Return a name in lower case words: ``apiKey``, ``API_KEY`` and "API key" are the same."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+", " ", name)
    return spaced.lower().strip()


def is_secret(name: str, value: Any) -> bool:
    """Whether ``value``, which is logged under ``name``, looks like a credential.

    True and False only say whether there is one. A number of tokens is not a credential.
    """
    if value is None or isinstance(value, bool) or not _names_secret(name):
        return False
    return not (isinstance(value, int | float) and "tokens" in words(name).split())


@lru_cache(maxsize=512)
def _names_secret(name: str) -> bool:
    return LOGGED_SECRET.search(NOT_SECRET.sub("|", words(name))) is not None
