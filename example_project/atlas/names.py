"""Names of places in plain letters, for comparing what people type with what is written.

The rule: two spellings that differ only in accents, case or typographic quotes are one name.
"""

import unicodedata

# Letters that Unicode does not take apart into a plain one and its accent.
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
    """`name` in lower case without accents: "São Tomé" is "sao tome"."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(c for c in letters if not unicodedata.combining(c)).translate(LETTERS)
