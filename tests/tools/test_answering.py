import io

import mcp_types as types
import pytest

from tools.answering import POEM, Answers
from tools.telling import Plain

DATES = {"starts": {"type": "string", "title": "First day"}, "sure": {"type": "boolean"}}
TITLED = {"type": "string", "oneOf": [{"const": "FR", "title": "Paris"}]}


def form(properties):
    schema = {"type": "object", "properties": properties}
    return types.ElicitRequestFormParams(message="Well?", requested_schema=schema)


@pytest.fixture
def told():
    return io.StringIO()


async def test_a_script_fills_in_what_fits(told):
    answers = Answers(Plain(told))
    choice = {"type": "string", "enum": ["slow", "brisk"]}
    filled = await answers.elicit(None, form(DATES | {"city": TITLED, "pace": choice}))
    assert filled.action == "accept"
    assert filled.content == {"starts": "2027-04-01", "sure": True, "city": "FR", "pace": "slow"}
    assert "Well?" in told.getvalue()
    assert (answers.forms, answers.are_typed) == (1, False)


async def test_a_person_is_asked_field_by_field(told):
    typed = iter(["2027-05-01", "no", ""])
    answers = Answers(Plain(told), lambda prompt: next(typed))
    filled = await answers.elicit(None, form(DATES | {"city": TITLED}))
    assert filled.content == {"starts": "2027-05-01", "sure": False, "city": "FR"}
    assert "FR: Paris" in told.getvalue()


async def test_nobody_is_sent_to_a_page(told):
    page = types.ElicitRequestURLParams(
        message="Sign in", url="https://shop.example", elicitation_id="1"
    )
    assert (await Answers(Plain(told)).elicit(None, page)).action == "decline"


@pytest.mark.parametrize(("typed", "said"), [(None, POEM), ("Rain.", "Rain.")])
async def test_a_sample_is_a_poem_or_what_is_typed(told, typed, said):
    answers = Answers(Plain(told), typed and (lambda prompt: typed))
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Sing"))
    params = types.CreateMessageRequestParams(messages=[asked], max_tokens=9)
    sampled = await answers.sample(None, params)
    assert sampled.content.text == said
    assert "Sing" in told.getvalue()
