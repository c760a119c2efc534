"""What a model reads of a page of HTML."""

from __future__ import annotations

import pytest

from django_mcp.bridges.views.results import markdown, text

from .. import site


def test_page_is_reduced_to_its_main_part():
    assert markdown(site.PAGE) == "# Hello\n\nA **bold** [link](/x/).\n\nshown"
    assert text(site.PAGE).splitlines() == ["Hello", "A", "bold", "link", ".", "shown"]


@pytest.mark.parametrize(
    ("html", "read"),
    [
        ("", ""),
        ("plain", "plain"),
        ("/etc/passwd.html", "/etc/passwd.html"),
        ("https://shop.example/", "https://shop.example/"),
        ('<?xml version="1.0"?><html><body>x</body></html>', "x"),
        ("<svg><style>no</style></svg><p hidden><input type=hidden><nav>no</nav></p>yes", "yes"),
        ("<p>a</p><p>b</p>", "a\n\nb"),
        ("<title>T</title><p>a", "# T\n\na"),
        ("<html><head><title>T</title></head><body><h1>H</h1></body></html>", "# H"),
        ("<div role=main>in</div>out", "in"),
        ("<ul><li>a</li><li>b</li></ul>", "- a\n- b"),
        ("<a href='x'>y</a><!-- hidden -->", "[y](x)"),
        ("<p hidden>no</p><p aria-hidden=true>no</p><nav>no</nav><svg>no</svg>yes", "yes"),
        (
            "<script>no</script><style>no</style><template>no</template><iframe>no</iframe>yes",
            "yes",
        ),
        ("<input type=hidden value=no><input type=password value=no><input value=yes>", "yes"),
        ("<input type=submit value=Save><button>Go</button>", "Go"),
        ("<input type=checkbox checked> on <input type=radio> off", "[x]  on [ ]  off"),
        ("<select><option>a<option selected>b</select>", "b"),
        ("<textarea>long</textarea>", "long"),
        ("<table><tr><th>a</th></tr><tr><td>1</td></tr></table>", "| a |\n| --- |\n| 1 |"),
        ("<img src=x alt=cat>", ""),
        ("<p>&lt;b&gt; &amp;</p>", "<b> &"),
    ],
)
def test_html_is_converted_to_markdown(html, read):
    assert markdown(html) == read


def test_deeply_nested_elements_are_converted():
    assert markdown("<div>" * 5000 + "deep" + "</div>" * 5000) == "deep"
