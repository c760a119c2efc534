"""URI templates (RFC 6570): expansion, and matching of URIs."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp.protocol.uri_template import MAX_MATCHED_LENGTH, Template

# RFC 6570, section 3.2.
VARIABLES = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}
EXAMPLES = """
3.2.1 {count} one,two,three
3.2.1 {count*} one,two,three
3.2.1 {/count} /one,two,three
3.2.1 {/count*} /one/two/three
3.2.1 {;count} ;count=one,two,three
3.2.1 {;count*} ;count=one;count=two;count=three
3.2.1 {?count} ?count=one,two,three
3.2.1 {?count*} ?count=one&count=two&count=three
3.2.1 {&count*} &count=one&count=two&count=three
3.2.2 {var} value
3.2.2 {hello} Hello%20World%21
3.2.2 {half} 50%25
3.2.2 O{empty}X OX
3.2.2 O{undef}X OX
3.2.2 {x,y} 1024,768
3.2.2 {x,hello,y} 1024,Hello%20World%21,768
3.2.2 ?{x,empty} ?1024,
3.2.2 ?{x,undef} ?1024
3.2.2 ?{undef,y} ?768
3.2.2 {var:3} val
3.2.2 {var:30} value
3.2.2 {list} red,green,blue
3.2.2 {list*} red,green,blue
3.2.2 {keys} semi,%3B,dot,.,comma,%2C
3.2.2 {keys*} semi=%3B,dot=.,comma=%2C
3.2.3 {+var} value
3.2.3 {+hello} Hello%20World!
3.2.3 {+half} 50%25
3.2.3 {base}index http%3A%2F%2Fexample.com%2Fhome%2Findex
3.2.3 {+base}index http://example.com/home/index
3.2.3 O{+empty}X OX
3.2.3 O{+undef}X OX
3.2.3 {+path}/here /foo/bar/here
3.2.3 here?ref={+path} here?ref=/foo/bar
3.2.3 up{+path}{var}/here up/foo/barvalue/here
3.2.3 {+x,hello,y} 1024,Hello%20World!,768
3.2.3 {+path,x}/here /foo/bar,1024/here
3.2.3 {+path:6}/here /foo/b/here
3.2.3 {+list} red,green,blue
3.2.3 {+list*} red,green,blue
3.2.3 {+keys} semi,;,dot,.,comma,,
3.2.3 {+keys*} semi=;,dot=.,comma=,
3.2.4 {#var} #value
3.2.4 {#hello} #Hello%20World!
3.2.4 {#half} #50%25
3.2.4 foo{#empty} foo#
3.2.4 foo{#undef} foo
3.2.4 {#x,hello,y} #1024,Hello%20World!,768
3.2.4 {#path,x}/here #/foo/bar,1024/here
3.2.4 {#path:6}/here #/foo/b/here
3.2.4 {#list} #red,green,blue
3.2.4 {#list*} #red,green,blue
3.2.4 {#keys} #semi,;,dot,.,comma,,
3.2.4 {#keys*} #semi=;,dot=.,comma=,
3.2.5 {.who} .fred
3.2.5 {.who,who} .fred.fred
3.2.5 {.half,who} .50%25.fred
3.2.5 www{.dom*} www.example.com
3.2.5 X{.var} X.value
3.2.5 X{.empty} X.
3.2.5 X{.undef} X
3.2.5 X{.var:3} X.val
3.2.5 X{.list} X.red,green,blue
3.2.5 X{.list*} X.red.green.blue
3.2.5 X{.keys} X.semi,%3B,dot,.,comma,%2C
3.2.5 X{.keys*} X.semi=%3B.dot=..comma=%2C
3.2.5 X{.empty_keys} X
3.2.5 X{.empty_keys*} X
3.2.6 {/who} /fred
3.2.6 {/who,who} /fred/fred
3.2.6 {/half,who} /50%25/fred
3.2.6 {/who,dub} /fred/me%2Ftoo
3.2.6 {/var} /value
3.2.6 {/var,empty} /value/
3.2.6 {/var,undef} /value
3.2.6 {/var,x}/here /value/1024/here
3.2.6 {/var:1,var} /v/value
3.2.6 {/list} /red,green,blue
3.2.6 {/list*} /red/green/blue
3.2.6 {/list*,path:4} /red/green/blue/%2Ffoo
3.2.6 {/keys} /semi,%3B,dot,.,comma,%2C
3.2.6 {/keys*} /semi=%3B/dot=./comma=%2C
3.2.7 {;who} ;who=fred
3.2.7 {;half} ;half=50%25
3.2.7 {;empty} ;empty
3.2.7 {;v,empty,who} ;v=6;empty;who=fred
3.2.7 {;v,bar,who} ;v=6;who=fred
3.2.7 {;x,y} ;x=1024;y=768
3.2.7 {;x,y,empty} ;x=1024;y=768;empty
3.2.7 {;x,y,undef} ;x=1024;y=768
3.2.7 {;hello:5} ;hello=Hello
3.2.7 {;list} ;list=red,green,blue
3.2.7 {;list*} ;list=red;list=green;list=blue
3.2.7 {;keys} ;keys=semi,%3B,dot,.,comma,%2C
3.2.7 {;keys*} ;semi=%3B;dot=.;comma=%2C
3.2.8 {?who} ?who=fred
3.2.8 {?half} ?half=50%25
3.2.8 {?x,y} ?x=1024&y=768
3.2.8 {?x,y,empty} ?x=1024&y=768&empty=
3.2.8 {?x,y,undef} ?x=1024&y=768
3.2.8 {?var:3} ?var=val
3.2.8 {?list} ?list=red,green,blue
3.2.8 {?list*} ?list=red&list=green&list=blue
3.2.8 {?keys} ?keys=semi,%3B,dot,.,comma,%2C
3.2.8 {?keys*} ?semi=%3B&dot=.&comma=%2C
3.2.9 {&who} &who=fred
3.2.9 {&half} &half=50%25
3.2.9 ?fixed=yes{&x} ?fixed=yes&x=1024
3.2.9 {&x,y,empty} &x=1024&y=768&empty=
3.2.9 {&x,y,undef} &x=1024&y=768
3.2.9 {&var:3} &var=val
3.2.9 {&list} &list=red,green,blue
3.2.9 {&list*} &list=red&list=green&list=blue
3.2.9 {&keys} &keys=semi,%3B,dot,.,comma,%2C
3.2.9 {&keys*} &semi=%3B&dot=.&comma=%2C
"""


@pytest.mark.parametrize(
    ("template", "uri"),
    [line.split()[1:] for line in EXAMPLES.strip().splitlines()],
)
def test_examples_of_the_rfc_are_expanded(template, uri):
    assert Template(template).expand(VARIABLES) == uri


def test_empty_values_are_left_out():
    variables = {"l": [], "m": {}, "n": [None]}
    assert Template("a{l}{?m}{/n}{?l*,m*}").expand(variables) == "a"


def test_expand_accepts_numbers_and_omits_none():
    assert Template("a/{n}{?l*,m*}").expand(
        {"n": 5, "l": [1, None], "m": {"k": None, "e": ""}}
    ) == ("a/5?l=1&e=")
    assert Template("{;m*}{m*}").expand({"m": {"e": ""}}) == ";ee="
    assert Template("é/{+v}").expand({"v": "a%20é"}) == "%C3%A9/a%20%C3%A9"
    assert Template("{+v:2}").expand({"v": "a%20b"}) == "a%20"


@pytest.mark.parametrize(
    ("template", "position"),
    [
        ("a{b", 1),
        ("a}b", 1),
        ("{a{b}}", 0),
        ("{}", 1),
        ("a/{}", 3),
        ("{a,}", 3),
        ("{a b}", 1),
        ("{=a}", 1),
        ("{|a}", 1),
        ("{?a,b-c}", 4),
        ("{a:0}", 1),
        ("{a:10000}", 1),
        ("{a*:3}", 1),
        ("{a.}", 1),
        ("{é}", 1),
        ("a b", 1),
        ("a/%zz{b}", 2),
        ("a\n", 1),
        ("<{a}>", 0),
    ],
)
def test_invalid_template_is_rejected_with_its_position(template, position):
    with pytest.raises(ValueError, match=f"at position {position}$"):
        Template(template)


def test_names_are_unique_and_in_order():
    assert Template("{b}/{a*}{?b:3,c.d,%41}").names == ("b", "a", "c.d", "%41")
    assert Template("a").names == ()
    assert repr(Template("{a}")) == "Template('{a}')"


@pytest.mark.parametrize(
    ("template", "uri", "variables"),
    [
        ("a://b", "a://b", {}),
        ("a://b", "a://bc", None),
        ("a://{b}", "a://", {"b": ""}),
        ("a://{b}/c", "a://x%20y%2Fz/c", {"b": "x y/z"}),
        ("a://{b}", "a://x/y", None),
        ("a://{b}", "a://x?y", None),
        ("a://{b}", "a://x@y:z,1", {"b": "x@y:z,1"}),
        ("a://{b}", "a://é%c3%A9", {"b": "éé"}),
        ("é://{b}", "%C3%a9://x", {"b": "x"}),
        ("a:{b}:{c}", "a:x:y", {"b": "x", "c": "y"}),
        ("a/{b}.json", "a/x.json.json", {"b": "x.json"}),
        ("{a}{b}", "xy", {"a": "xy", "b": ""}),
        ("{a,b}", "x,y", {"a": "x", "b": "y"}),
        ("{a,b}", "x", {"a": "x"}),
        ("{a*}", "x,y", {"a": "x,y"}),
        ("{+a}/c", "x/y?z/c", {"a": "x/y?z"}),
        ("{+a,b}", "x/y,z", {"a": "x/y", "b": "z"}),
        ("a{#b}", "a#x/y?z", {"b": "x/y?z"}),
        ("a{#b}", "a", {}),
        ("a{/b}", "a/x", {"b": "x"}),
        ("a{/b}", "a", {}),
        ("a{/b,c}", "a/x/y", {"b": "x", "c": "y"}),
        ("a{/b*}", "a/x/y%2Fz", {"b": "x/y/z"}),
        ("a{/b*}/z", "a/x/y/z", {"b": "x/y"}),
        ("a{.b}", "a.tar.gz", {"b": "tar.gz"}),
        ("a{.b,c}", "a.tar.gz", {"b": "tar", "c": "gz"}),
        ("a{.b*}", "a.tar.gz", {"b": "tar.gz"}),
        ("a{;b,c}", "a;c=1;b", {"b": "", "c": "1"}),
        ("a{?b,bc}", "a?bc=1&b=2", {"b": "2", "bc": "1"}),
        ("a{?b,c}", "a?c=x%26y", {"c": "x&y"}),
        ("a{?b,c}", "a?b=x/y:z?,1", {"b": "x/y:z?,1"}),
        ("a{?b,c}", "a?b", {"b": ""}),
        ("a{?b,c}", "a", {}),
        ("a{?b,c}", "a?", None),
        ("a{?b,c}", "a?d=1", None),
        ("a{?b,c}", "a?b=1&d=1", None),
        ("a{?b,c}", "a?b=1&b=2", None),
        ("a{?b,c}", "a?b=1&b=1", {"b": "1"}),
        ("a{?b*}", "a?b=1&b=2", {"b": "1,2"}),
        ("a?x=1{&b}", "a?x=1&b=2", {"b": "2"}),
        ("a?x=1{&b}", "a?x=1", {}),
        ("{a:1}/{a}", "f/foo", {"a": "foo"}),
        ("{a:1}/{a}", "g/foo", None),
        ("{a:2}", "foo", None),
        ("{a}/{a}", "x/y", None),
        ("a/{b}2F", "a/%2F2F", {"b": "/"}),
        ("a/{b}2F", "a/%2F", None),
        ("a/{b}", "a/%2", None),
        ("a/{b}", "a/%", None),
        ("a/{b}", "a/%FF", None),
        ("a/{b}", "a/%ED%A0%80", None),
        ("a/{b}", "a/%00", None),
        ("a/{b}", "a/\ud800", None),
        ("a/{b}", "a/%252F", {"b": "%2F"}),
        ("a/{b}", "a/" + "x" * MAX_MATCHED_LENGTH, None),
    ],
)
def test_uris_are_matched(template, uri, variables):
    assert Template(template).match(uri) == variables


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@pytest.mark.parametrize(
    "template",
    [
        "a://{x}/{y}",
        "a://{x}:{y}",
        "a://{x,y}",
        "a://b{/x,y}",
        "a://b{/x*}/c/{y}",
        "a://b{?x,y}",
        "a://b{?x*,y*}",
        "a://b?c=1{&x,y}",
        "a://b{;x,y}",
        "a://{x}{#y}",
        "a://{x}{?y}",
        "{x}?{y}",
    ],
)
@given(x=texts, y=texts.filter(lambda text: "%" not in text))
def test_expanded_uri_matches(template, x, y):
    assert Template(template).match(Template(template).expand({"x": x, "y": y})) == {"x": x, "y": y}


@given(x=st.text("ab/?#,é ", max_size=20))
def test_reserved_expansion_matches(x):
    assert Template("a:{+x}").match(Template("a:{+x}").expand({"x": x})) == {"x": x}


@given(st.text("a{}+#./;?&,*:3%4b é<", max_size=12), st.text("ab/?%41é\0", max_size=12))
def test_only_value_error_is_raised(template, uri):
    try:
        made = Template(template)
    except ValueError:
        return
    found = made.match(uri)
    assert found is None or set(found) <= set(made.names)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{a}{b}{c}{d}{e}{f}!", "a" * 2000),
        ("{a}-{b}-{c}-{d}-{e}!", "-" * 2000),
        ("{a*}{b*}{c*}!", "," * 2000),
        ("a{/a*}{/b*}{/c*}!", "a" + "/" * 2000),
        ("a{?a*,b*,c*}!", "a?" + "&".join(["a=1"] * 500)),
        ("{;a*}{;a*}{;a*}!", ";a" * 1000),
    ],
)
def test_matching_takes_linear_time(template, uri):
    # Backtracking would take exponential time.
    template = Template(template)
    template.match(uri)
    begun = time.process_time()
    assert template.match(uri) is None
    assert time.process_time() - begun < 2


PLAIN = [
    "a://{x}", "a://{x}/b/{y}", "a://{x}?{y}#z", "a://{+x}", "a://{x:3}/{x}", "%2fa{x}", "", "a",
    "é{x}/", "{x}", "a://{x}/{+y}",
]  # fmt: skip


BITS = [
    "a",
    "://",
    "/",
    "b",
    "?",
    "#",
    "z",
    "%2F",
    "%2f",
    "%C3%A9",
    "%c3%a9",
    "é",
    "\n",
    "ab",
    "%00",
]


@pytest.mark.parametrize("template", PLAIN)
@given(st.lists(st.sampled_from(BITS), max_size=8).map("".join))
def test_regular_expression_finds_the_same_as_the_automaton(template, uri):
    fast, slow = Template(template), Template(template)
    assert fast._pattern is not None
    slow._pattern = None
    for text in (uri, "a://" + uri):
        assert fast.match(text) == slow.match(text)


@pytest.mark.parametrize(
    "template", ["{x}{y}", "{x}-{y}", "{+x}/{y}", "{x,y}", "{/x}", "{x*}", "{?x}", "{#x}"]
)
def test_ambiguous_template_uses_the_automaton(template):
    assert Template(template)._pattern is None
