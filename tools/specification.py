"""The normative sentences of the specification, read from a checkout of its repository.

A sentence is normative when it holds a key word of BCP 14 in capitals, in the text of a page:
what a page only shows (code, signatures, diagrams) says nothing. An item of a list speaks
together with the line that leads it in ("Servers MUST:"), and such a line is no sentence of its
own. A page that says the same sentence twice (the generated page `schema` repeats it for each
type that inherits it) has it once.

A sentence is identified by the digest of its words, without markup and line breaks. Reformatting a
page changes nothing; a changed word changes the digest.
"""

import hashlib
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

KEYWORD = re.compile(
    r"\b(MUST NOT|SHALL NOT|SHOULD NOT|NOT RECOMMENDED"
    r"|MUST|SHALL|SHOULD|REQUIRED|RECOMMENDED|MAY|OPTIONAL)\b"
)
UNSPOKEN = re.compile(
    r"\A---\n.*?\n---\n"
    r"|^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}).*?^[ \t]*(?P=fence)[ \t]*$"
    r"|<!--.*?-->|\{/\*.*?\*/\}|<(?P<tag>pre|svg|aside)\b.*?</(?P=tag)>"
    r'|<div class="tsd-(?:signature|anchor-link)".*?</div>|^import .*?$',
    re.S | re.M,
)
CODE = re.compile(r"(?P<ticks>`+)(?P<text>(?:(?!\n\s*\n).)+?)(?P=ticks)", re.S)
CODE_TAG = re.compile(r"</?code\b[^<>]*>")
INLINE_TAG = re.compile(r"</?(?:a|b|i|em|strong|span|sub|sup)\b[^<>]*>")
ITEM_TAG = re.compile(r"<li\b[^<>]*>\s*(?:<p>)?")
BLOCK_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\](?:\([^()]*\)|\[[^\[\]]*\])")
EMPHASIS = re.compile(r"\*+|(?<!\w)_+|_+(?!\w)|`+")
ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d+[.)])[ \t]+(.*)")
ABBREVIATION = r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\betc\.)"
END = re.compile(rf"(?<=[.!?])[\"')*_]*{ABBREVIATION}\s+(?=[^a-z\s])")
CODE_MARK, SHOWN = "\ue000", "\ue001"  # private use: no page holds them
MASK = dict(zip(map(ord, ".*_"), "\ue002\ue003\ue004", strict=True))
UNMASK = {ord(CODE_MARK): "", **{ord(masked): chr(char) for char, masked in MASK.items()}}


@dataclass(frozen=True)
class Sentence:
    page: str
    number: int
    digest: str
    keyword: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.page} {self.number} {self.digest} {self.keyword}"


@dataclass
class Block:
    """A paragraph, a list item, a heading or a table cell, and the line it may lead in."""

    kind: str
    indent: int
    text: str
    lead: "Block | None" = None

    def sentences(self) -> list[str]:
        first, *others = split(self.text) or [""]
        return [" ".join(filter(None, (self.opening(), first))), *others]

    def opening(self) -> str:
        """The leading line in full: "Servers MUST:" or, for nested lists, several in a row."""
        last = self.lead.sentences()[-1] if self.lead else ""
        return last if last.endswith(":") else ""


def plain(text: str) -> str:
    """The sentence without its markup: links, emphasis, code ticks, entities, line breaks."""
    text = CODE.sub(lambda match: CODE_MARK + match["text"].translate(MASK), text)
    text = EMPHASIS.sub("", LINK.sub(r"\1", LINK.sub(r"\1", text)))
    return " ".join(html.unescape(text).split())


def split(text: str) -> list[str]:
    """The sentences of one block. A full stop in code or in an abbreviation ends none."""
    return [part.translate(UNMASK).strip() for part in END.split(plain(text)) if part]


def markdown(source: str) -> str:
    """The page with what it shows but does not say (code, signatures, tags) taken out."""
    source = UNSPOKEN.sub(lambda match: f"\n\n{match['indent'] or ''}{SHOWN}\n\n", source)
    source = INLINE_TAG.sub("", CODE_TAG.sub("`", source))
    code = iter([match.group() for match in CODE.finditer(source)])
    source = ITEM_TAG.sub("\n\n- ", CODE.sub(CODE_MARK, source))
    source = BLOCK_TAG.sub("\n\n", source)
    return re.sub(CODE_MARK, lambda _: next(code), source)


class Page:
    """The blocks of one page, each joined to the line that leads it in."""

    def __init__(self, source: str) -> None:
        self.blocks: list[Block] = []
        self.open: list[Block] = []
        self.growing: Block | None = None
        for line in markdown(source).splitlines():
            self.read(line.removeprefix("> "))

    def read(self, line: str) -> None:
        text, item = line.strip(), ITEM.match(line)
        if not text:
            self.growing = None
        elif text.startswith("#"):
            self.open, self.growing = [], None
        elif text.startswith("|"):
            self.add(Block("table", len(line) - len(line.lstrip()), SHOWN))
            self.blocks += [Block("cell", 0, cell) for cell in re.split(r"(?<!\\)\|", text)]
        elif item:
            self.add(Block("item", len(item[1]), item[2]))
        elif self.growing:
            self.growing.text += f" {text}"
        else:
            self.add(Block("paragraph", len(line) - len(line.lstrip()), text))

    def add(self, block: Block) -> None:
        while self.open and self.closes(self.open[-1], block):
            self.open.pop()
        if block.kind == "item" and self.open:
            block.lead = self.open[-1]
        self.blocks.append(block)
        self.open.append(block)
        self.growing = block

    @staticmethod
    def closes(last: Block, block: Block) -> bool:
        """A sibling or outer block ends `last`; a list may start level with its leading line."""
        level = block.kind == "item" and last.kind == "paragraph"
        return last.indent > block.indent or (last.indent == block.indent and not level)

    def normative(self) -> Iterator[tuple[str, str]]:
        """(key words, text) of each normative sentence, a repeated one only once."""
        leading = {id(block.lead) for block in self.blocks if block.opening()}
        sentences = (
            sentence
            for block in self.blocks
            for sentence in block.sentences()[: -1 if id(block) in leading else None]
        )
        for sentence in dict.fromkeys(sentences):
            if keywords := dict.fromkeys(KEYWORD.findall(sentence)):
                yield "/".join(keywords), sentence


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def page_sentences(name: str, source: str) -> Iterator[Sentence]:
    for number, (keyword, text) in enumerate(Page(source).normative(), start=1):
        yield Sentence(name, number, digest(text), keyword.replace(" ", "-"), text)


def specification(checkout: Path) -> list[Sentence]:
    """Every normative sentence of the five revisions, in the order of pages."""
    root = checkout / "docs" / "specification"
    files = [path for name in REVISIONS for path in sorted((root / name).rglob("*.mdx"))]
    if not files:
        raise SystemExit(f"{root} holds no page: is {checkout} a checkout of the specification?")
    names = {path: path.relative_to(root).with_suffix("").as_posix() for path in files}
    return [
        sentence
        for path, name in names.items()
        for sentence in page_sentences(name, path.read_text(encoding="utf-8"))
    ]
