"""
The attempts of an attacker, as data, drawn from what anybody could guess.

Guesses are good: keys of hidden rows, prefixes of hidden values, names of columns that are not
whitelisted. The most dangerous ones come first in each list, because Hypothesis tries them first.
An attempt does not contain how it is executed.
"""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from hypothesis import strategies as st

from .dataset import AMOUNT, DAY, HIDDEN, NOWHERE, RANK, VISIBLE, number

JSON = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """One thing tried: ``kind`` says how (``campaign.TRIED``), ``params`` are the request's.

    ``method`` is the request's, or says what is special about it.
    """

    kind: str
    method: str = ""
    params: JSON = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The attacker's own input, which responses may repeat."""
        return json.dumps([self.method, self.params], default=str)

    @property
    def left(self) -> str:
        """The part of the input that may be stored in a row that alice sees."""
        arguments = self.params.get("arguments", {})
        return json.dumps([arguments.get("title"), arguments.get("word")])


KEYS = st.sampled_from([*HIDDEN, *VISIBLE, *HIDDEN, *NOWHERE])
OURS = st.sampled_from([*VISIBLE, *VISIBLE, *HIDDEN])
NUMBERS = KEYS.map(number)
ODD = st.sampled_from(
    ["", "%", "_", "'", '"', "\\", "0", "-1", "1e3", "null", "kanary", "*", "\0", "é" * 99]
)
AUTHORS = st.sampled_from([101, 1, 2, 201, 999])
LABELS = st.sampled_from([101, 1, 999])
URIS = st.one_of(
    KEYS.map("model://canaries/paper/{}".format),
    KEYS.map("model://canaries/paper/{}/scan".format),
    NUMBERS.map("paper://{}".format),
    NUMBERS.map("paper://{}/scan".format),
    KEYS.map("abstract://{}".format),
    AUTHORS.map("model://canaries/author/{}".format),
    st.sampled_from([1, 101, 999]).map("model://canaries/label/{}".format),
    st.sampled_from(
        [
            "kanary://report", "kanary://x", "model://canaries/remark/1", "model://auth/user/1",
            "model://canaries/paper/1/secret", "model://canaries/paper/%31%30%31", "paper://P%2D1",
            "model://canaries/tenant/2", "model://canaries/paper/101%00", "paper://kanary%2Dnumber",
        ]
    ),
)  # fmt: skip
HIDDEN_URIS = st.sampled_from(HIDDEN).map("model://canaries/paper/{}".format)
NAMED = st.one_of(KEYS, KEYS.map(str), NUMBERS, URIS, ODD)  # what an argument may say for a row
WORDS = st.one_of(
    ODD, NUMBERS,
    st.sampled_from(
        ["kanary", "kanary-", "kanary-1", "another", "On", "Author", "P-", "91827", "red"]
    ),
    st.integers(0, 60).map("kanary-{}".format),
)  # fmt: skip
TITLES = st.one_of(st.sampled_from(["On z", "kanary"]), WORDS)
VALUES = st.one_of(
    WORDS, KEYS, AUTHORS,
    st.sampled_from(
        [
            str(AMOUNT + HIDDEN[0]), str(AMOUNT), "10.00", 60, str(DAY), "2026-01-01", "1907-03-02",
            "2026-02-01T00:00:00Z", "draft", "final", True, False, None, RANK, -RANK, 1.5,
        ]
    ),
    st.lists(st.one_of(KEYS, AUTHORS), max_size=3),
)  # fmt: skip
FILTERS = st.sampled_from(
    [
        "author", "author__in", "state", "state__in", "amount", "amount__gte", "amount__lte", "day",
        "day__gte", "day__lte", "read_at__isnull", "read_at__gte", "labels", "labels__in",
    ]
)  # fmt: skip
# Columns, and ways to them, that no whitelist has.
SMUGGLED = st.sampled_from(
    [
        "secret", "secret__startswith", "secret_rank", "secret_rank__gte", "sealed", "tenant",
        "tenant__name", "author__secret__startswith", "remarks__text__startswith", "pk__in",
        "tenant__members__email__contains", "amount__regex", "number__regex",
        "author__papers__secret", "tenant__paper__secret", "number__in", "_connector", "extra",
        "labels__tenant__name",
    ]
)  # fmt: skip
# Arguments with which they would reveal something.
FITTING: JSON = {
    "secret__startswith": "kanary", "secret__contains": "nary-1", "secret_rank__gte": 1,
    "author__secret__startswith": "kanary", "remarks__text__startswith": "kanary",
    "author__papers__secret__startswith": "kanary", "author__papers__amount__gte": str(AMOUNT),
}  # fmt: skip
ORDERS = st.sampled_from(["day", "-day", "amount", "-amount"])
TELLING = ["secret", "-secret", "secret_rank", "-secret_rank", "author__secret", "-author__secret"]
ORDERINGS = st.sampled_from([*TELLING, "tenant", "?", "remarks__text", "-sealed"])
LIMITS = st.one_of(st.integers(1, 4), st.sampled_from([0, 100, 101]))
CURSORS = st.sampled_from(["next", "next", "other", "cut", "forged"])
PAPERS = st.sampled_from(["search_paper", "search_numbered"])
SEARCHES = st.sampled_from(["search_paper", "search_paper", "search_numbered", "search_author"])


def _only_plausible(found: JSON) -> JSON:
    """Attackers read schemas: most values fit the filter."""
    return {name: value for name, value in found.items() if value is not None}


def searches() -> st.SearchStrategy[JSON]:
    """Arguments of a search, mostly valid, so that the search runs."""
    right = {
        "query": WORDS, "ordering": ORDERS,
        "limit": LIMITS, "author": AUTHORS, "state": st.sampled_from(["draft", "final"]),
        "amount__gte": st.sampled_from(["1", "30", str(AMOUNT), str(AMOUNT + HIDDEN[0])]),
        "amount__lte": st.sampled_from(["30", "91827400"]), "day__lte": st.just("1950-01-01"),
        "day__gte": st.sampled_from(["1907-03-02", "2026-01-03"]), "day": st.just("1907-03-18"),
        "labels": st.sampled_from([1, 101, 999]), "read_at__isnull": st.booleans(),
    }  # fmt: skip
    some = st.fixed_dictionaries({}, optional=right)
    wrong = st.dictionaries(st.one_of(FILTERS, SMUGGLED), VALUES, max_size=1)
    order = st.one_of(st.just({}), ORDERINGS.map(lambda name: {"ordering": name}))
    mixed = st.tuples(some, wrong, order).map(lambda parts: parts[0] | parts[1] | parts[2])
    return st.one_of(some, mixed).map(_only_plausible)


def called(tool: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Attempt]:
    """A call of a tool that binds a model instance."""
    return st.fixed_dictionaries(arguments).map(
        lambda given: Attempt("keyed", "tools/call", {"name": tool, "arguments": given})
    )


def _searched(name: str, arguments: JSON) -> Attempt:
    return Attempt("paged", "tools/call", {"name": name, "arguments": arguments})


def _completed(thing: JSON, argument: str, text: str) -> Attempt:
    argument_given = {"name": argument, "value": text}
    return Attempt("keyed", "completion/complete", {"ref": thing, "argument": argument_given})


def _read(uri: str) -> Attempt:
    return Attempt("keyed", "resources/read", {"uri": uri})


def _unknown(name: str) -> Attempt:
    return Attempt("keyed", "tools/call", {"name": name, "arguments": {}})


def _prompted(name: str, given: Any) -> Attempt:
    return Attempt("keyed", "prompts/get", {"name": name, "arguments": {"paper": str(given)}})


LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
COMPLETED = st.sampled_from(
    [
        ({"type": "ref/resource", "uri": "model://canaries/paper/{pk}"}, "pk"),
        ({"type": "ref/resource", "uri": "abstract://{paper}"}, "paper"),
        ({"type": "ref/resource", "uri": "model://canaries/paper/{pk}"}, "pk"),
        ({"type": "ref/prompt", "name": "review"}, "paper"),
        ({"type": "ref/prompt", "name": "kanary_accuse"}, "x"),
        ({"type": "ref/resource", "uri": "paper://{number}"}, "number"),
        ({"type": "ref/resource", "uri": "abstract://{paper}"}, "paper"),
        ({"type": "ref/resource", "uri": "kanary://{name}"}, "name"),
        ({"type": "ref/resource", "uri": "model://canaries/author/{pk}"}, "pk"),
    ]
)

# How attackers spend their time, by what they are after.
ATTEMPTS: dict[str, st.SearchStrategy[Attempt]] = {
    "filters": st.builds(_searched, SEARCHES, searches()),
    "ordering": st.builds(
        lambda name, order, limit: _searched(name, {"ordering": order, "limit": limit}),
        PAPERS, st.one_of(st.sampled_from(TELLING), st.sampled_from(TELLING), ORDERINGS, ORDERS),
        st.sampled_from([2, 3, 4, 5, 100, 0]),
    ),
    "pages": st.builds(
        lambda name, limit, order: _searched(name, {"limit": limit} | order),
        PAPERS, st.integers(1, 4), st.one_of(st.just({}), ORDERS.map(lambda by: {"ordering": by})),
    ),
    "search": st.builds(lambda name, text: _searched(name, {"query": text}), SEARCHES, WORDS),
    "smuggling": st.one_of(
        st.sampled_from(sorted(FITTING)).map(
            lambda name: _searched("search_paper", {name: FITTING[name]})
        ),
        st.sampled_from(sorted(FITTING)).map(
            lambda name: _searched("search_numbered", {name: FITTING[name]})
        ),
        st.builds(lambda name, value: _searched("search_paper", {name: value}), SMUGGLED, VALUES),
    ),
    "cursors": st.builds(
        lambda how, arguments, limit: Attempt(
            "cursor", how, {"name": "search_paper", "arguments": arguments | {"limit": limit}}
        ),
        CURSORS, st.one_of(st.just({}), searches()), st.integers(1, 3),
    ),
    "completion": st.builds(
        lambda about, text: _completed(*about, text),
        COMPLETED,
        st.one_of(
            st.sampled_from(["", "kanary"]), st.sampled_from(["", "kanary-number", "1", "2"]),
            WORDS.map(str), KEYS.map(str),
        ),
    ),
    "reading": URIS.map(_read),
    "binding": st.one_of(
        called("describe", paper=NAMED),
        called("compare", papers=st.lists(NAMED, max_size=4), author=st.one_of(st.none(), AUTHORS)),
        called("rename", paper=NAMED, title=TITLES),
        called("describe", paper=NAMED, secret=WORDS),
    ),
    "writing": st.one_of(
        called("update_paper", paper=NAMED, title=TITLES),
        called("update_paper", paper=KEYS, author=st.one_of(AUTHORS, URIS)),
        called("update_paper", paper=KEYS, labels=st.lists(LABELS)),
        called("update_paper", paper=KEYS, secret=WORDS),
        called("delete_paper", paper=NAMED),
    ),
    "forms": st.one_of(
        called("cite", paper=st.sampled_from(HIDDEN)),
        called("cite", paper=KEYS, others=st.lists(KEYS, max_size=2)),
        called("cite", paper=NAMED),
        called("cite", paper=st.sampled_from(VISIBLE), others=st.lists(KEYS, max_size=3)),
        called("cite", paper=st.sampled_from(VISIBLE), author=st.one_of(AUTHORS, URIS)),
    ),
    "changes": st.one_of(
        called("update_paper", paper=KEYS, title=st.sampled_from(["On z", "kanary"])),
        called("retitle", paper=KEYS, title=st.sampled_from(["On z", "kanary"])),
        called("delete_paper", paper=KEYS),
    ),
    "editing": st.one_of(
        called("retitle", paper=NAMED, title=TITLES),
        called("retitle", paper=KEYS, author=st.one_of(AUTHORS, URIS)),
        called("retitle", paper=KEYS, labels=st.lists(LABELS)),
        called("retitle", paper=KEYS, secret=WORDS),
        called("create_label", word=WORDS),
        called("create_label", word=WORDS, tenant=st.sampled_from([1, 2])),
    ),
    "questions": st.builds(
        lambda answer, words: Attempt(
            "asked", answer, {"name": "choose", "arguments": {"message": words}}
        ),
        st.one_of(KEYS.map(str), NUMBERS, ODD), WORDS,
    ),
    "views": st.one_of(
        called("paper", pk=KEYS),
        called("paper", pk=st.sampled_from(HIDDEN)),
        called("papers", author=AUTHORS, title=WORDS),
        KEYS.map("view://paper/{}".format).map(_read),
        st.sampled_from(["audit", "kanary_staff", "show_archive"]).map(_unknown),
    ),
    "redirects": called("archive", pk=OURS),
    "bugs": st.one_of(called("weigh", paper=OURS), called("broken", pk=OURS)),
    "page": st.builds(
        lambda who, query, accept: Attempt("visit", who, {"query": query, "accept": accept}),
        st.sampled_from(["alice", "alice", "nobody"]),
        st.sampled_from(["", "tool=kanary_audit", "server=default", "next=//kanary.example"]),
        st.sampled_from(["text/html", "text/html,*/*;q=0.8", "text/html;q=0.1"]),
    ),
    "relations": st.one_of(
        called("works", author=st.one_of(AUTHORS, URIS)),
        AUTHORS.map("model://canaries/author/{}".format).map(_read),
    ),
    "errors": st.one_of(
        called("weigh", paper=NAMED),
        st.sampled_from(["kanary_audit", "kanary_audi", "describ", "search_remark"]).map(_unknown),
        st.builds(_prompted, st.sampled_from(["review", "kanary_accuse"]), NAMED),
    ),
    "lists": st.sampled_from(LISTS).map(lambda method: Attempt("paged", method)),
    "subscriptions": st.builds(
        lambda hidden, others: Attempt("listen", params={"uris": [hidden, *others]}),
        st.one_of(HIDDEN_URIS, URIS.map(str)),
        st.lists(st.one_of(HIDDEN_URIS, URIS.map(str)), max_size=2),
    ),
}  # fmt: skip
FEW = {"lists": 4, "redirects": 10, "page": 12, "pages": 25}  # where there is not much more to try


def size(aim: str, number: int) -> int:
    """Return the number of different attempts, up to ``number``."""
    return min(number, FEW.get(aim, number))


def several(aim: str, number: int) -> st.SearchStrategy[list[Attempt]]:
    """Lists of different attempts; Hypothesis alone would repeat many."""
    most, said = size(aim, number), operator.attrgetter("text")
    return st.lists(ATTEMPTS[aim], min_size=most, max_size=most, unique_by=said)


def mixed(number: int) -> st.SearchStrategy[list[tuple[Attempt, ...]]]:
    """Lists of ``number`` attempts, in rounds with one attempt of each aim."""
    each = st.tuples(*(several(aim, number // len(ATTEMPTS)) for aim in ATTEMPTS))
    return each.map(lambda found: [tuple(filter(None, some)) for some in zip_longest(*found)])
