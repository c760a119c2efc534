"""Names of places in plain letters, to compare typed text with stored names.

Spellings that differ only in accents, case or typographic quotes are the same name.
"""

import unicodedata

# Letters that Unicode does not decompose into a plain letter and an accent.
LETTERS = str.maketrans(
    {
        "ß": "ss",
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "ħ": "h",
        "ı": "i",
        "ə": "e",
        "’": "'",
        "‘": "'",
        "ʻ": "'",
        "ʼ": "'",
        "–": "-",
    }
)
LAST = "\U0010ffff"


def plain(name: str) -> str:
    """Return `name` in lower case without accents: "São Tomé" becomes "sao tome"."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(c for c in letters if not unicodedata.combining(c)).translate(LETTERS)
