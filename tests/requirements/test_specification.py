"""Extraction of sentences from specification pages, and comparison of the list with a checkout."""

from pathlib import Path
from textwrap import dedent

import pytest

from tools import requirements
from tools.specification import digest, page_sentences, specification


def sentence_texts(source: str) -> list[str]:
    return [sentence.text for sentence in page_sentences("page", dedent(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("A server **MUST** answer. It must be nice.", ["A server MUST answer."]),
        ("A server\nMUST\nNOT lie.", ["A server MUST NOT lie."]),
        ("See [the _page_](/x#y): it **MAY** help.", ["See the page: it MAY help."]),
        ("Use `a.b _c_`, e.g. here. It MAY.", ["It MAY."]),
        ("It MUST be `a.b`, i.e. `_c*`. No.", ["It MUST be a.b, i.e. _c*."]),
        ("It MAY. `code` SHOULD too.", ["It MAY.", "code SHOULD too."]),
        ("MUSTARD is no key word, nor is XMAY.", []),
        ("> **Note:** it SHOULD.", ["Note: it SHOULD."]),
        ("| MUST a | b |\n| --- | --- |\n| c | MAY d |", ["MUST a", "MAY d"]),
        ("It MUST &mdash; always.", ["It MUST — always."]),
        ("It MUST. It MUST.", ["It MUST."]),
    ],
)
def test_sentences_with_key_words_are_extracted(source, expected):
    assert sentence_texts(source) == expected


@pytest.mark.parametrize(
    "ignored",
    [
        "---\ntitle: It MUST\n---\n",
        "```text\nIt MUST.\n```",
        "   ````md\n   It MUST.\n   ````",
        "<!-- It MUST. -->",
        "{/* It MUST. */}",
        "<pre><code>It MUST.</code></pre>",
        '<div class="tsd-signature">It MUST</div>',
        '<div className="x" />',
    ],
)
def test_code_comments_and_front_matter_are_ignored(ignored):
    assert sentence_texts(f"{ignored}\n\nIt MAY.") == ["It MAY."]


def test_list_items_are_joined_with_their_introduction():
    source = """
        It is said. Servers **MUST**:

        - answer. They SHOULD hurry.
        - be kind:
          1. to clients
          2. to others

        Others MAY.
    """
    assert sentence_texts(source) == [
        "Servers MUST: answer.",
        "They SHOULD hurry.",
        "Servers MUST: be kind: to clients",
        "Servers MUST: be kind: to others",
        "Others MAY.",
    ]


@pytest.mark.parametrize("between", ["```\ncode\n```", "## Heading", "| a table |", "Words."])
def test_introduction_applies_only_to_the_list_that_follows(between):
    assert sentence_texts(f"It MUST send:\n\n{between}\n\n- something") == ["It MUST send:"]


def test_list_without_an_introduction():
    assert sentence_texts("A note.\n\n- It MAY\n  go on\n- nothing") == ["It MAY go on"]


def test_sentences_of_generated_html_pages_are_extracted():
    source = (
        '<div class="tsd-comment"><p>Clients <a href="#x">SHOULD</a>\nuse <code>a&#x5F;b</code>.'
        "</p> <p>Servers MUST:</p> <ul> <li>answer</li> <li><p>end</p></li> </ul></div>"
    )
    assert sentence_texts(source) == [
        "Clients SHOULD use a_b.",
        "Servers MUST: answer",
        "Servers MUST: end",
    ]


def test_sentence_has_key_words_and_a_number():
    first, second = page_sentences("p", "It MUST, MUST NOT and MUST.\n\nIt is NOT RECOMMENDED.")
    assert str(first) == f"p 1 {digest(first.text)} MUST/MUST-NOT"
    assert (second.number, second.keyword) == (2, "NOT-RECOMMENDED")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a specification of one page, and a folder for the list."""
    monkeypatch.setattr(requirements, "FOLDER", tmp_path)
    (tmp_path / "decisions.txt").write_text(f"{digest('Clients MAY.')} client subject\n")
    page = tmp_path / "docs" / "specification" / "2025-11-25" / "server" / "tools.mdx"
    page.parent.mkdir(parents=True)
    page.write_text("Servers MUST.\n\nClients MAY.\n")
    assert requirements.main(["keep", str(tmp_path)]) == 0
    return tmp_path


def test_list_is_compared_with_a_checkout(checkout, capsys):
    assert requirements.main(["compare", str(checkout)]) == 0
    page = next(checkout.rglob("*.mdx"))
    page.write_text("Servers SHOULD.\n\nClients MAY.\n")
    assert requirements.main(["compare", str(checkout)]) == 1
    kept, found = digest("Servers MUST."), digest("Servers SHOULD.")
    assert capsys.readouterr().out.splitlines()[-4:] == [
        f"- 2025-11-25/server/tools 1 {kept} MUST",
        f"+ 2025-11-25/server/tools 1 {found} SHOULD",
        "    Servers SHOULD.",
        "2 normative sentences; 1 are not kept, 1 kept are gone.",
    ]


def test_list_contains_no_text_of_the_specification(checkout):
    lines = [line for line in (checkout / "sentences.txt").read_text().splitlines() if line]
    assert [line.split()[:2] for line in lines if not line.startswith("#")] == [
        ["2025-11-25/server/tools", "1"],
        ["2025-11-25/server/tools", "2"],
    ]
    assert "Servers MUST." not in "\n".join(lines)


def test_sentences_that_bind_a_server_are_printed(checkout, capsys):
    requirements.main([str(checkout)])
    requirements.main(["list", str(checkout), "--all", "--text", "--page", "server/tools"])
    own = f"2025-11-25/server/tools 1 {digest('Servers MUST.')} MUST"
    other = f"2025-11-25/server/tools 2 {digest('Clients MAY.')} MAY client subject"
    expected = [own, f"{own} server", "    Servers MUST.", other, "    Clients MAY."]
    assert capsys.readouterr().out.splitlines() == expected


def test_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="is .* a checkout"):
        specification(tmp_path)
