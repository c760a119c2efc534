"""Messages and options of sampling requests, and the content that the model returns."""

import pytest

import django_mcp as mcp
from django_mcp.declarations.questions import (
    _blocks,
    check_sampling_options,
    returned_blocks,
    sampling_messages,
)

TEXT = {"type": "text", "text": "hi"}
USE = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}
RESULT = {"type": "tool_result", "toolUseId": "1", "content": [TEXT]}
IMAGE = {"type": "image", "data": "iQ==", "mimeType": "image/png"}


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def messages_for(*given, tools=None):
    return sampling_messages(list(given), tools)


# Messages to the model.


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("hi", [user(TEXT)]),
        (["hi", "ho"], [user(TEXT), user({"type": "text", "text": "ho"})]),
        ([user("hi"), assistant("hi")], [user(TEXT), assistant(TEXT)]),
        ([user([TEXT, IMAGE])], [user([TEXT, IMAGE])]),
        ([assistant(USE), user([RESULT])], [assistant(USE), user([RESULT])]),
    ],
)
def test_messages_are_written_as_blocks(given, written):
    assert sampling_messages(given, None) == written


PICTURE = mcp.Image(b"\x89")
SOUND = mcp.Audio(b"\x89", "audio/mpeg")
AUDIO = {"type": "audio", "data": "iQ==", "mimeType": "audio/mpeg"}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (PICTURE, [user(IMAGE)]),
        (mcp.Message(SOUND), [user(AUDIO)]),
        (["hi", PICTURE, SOUND], [user(TEXT), user(IMAGE), user(AUDIO)]),
        ([user(PICTURE), assistant(SOUND)], [user(IMAGE), assistant(AUDIO)]),
        ([user(["hi", mcp.Text("hi"), SOUND, IMAGE])], [user([TEXT, TEXT, AUDIO, IMAGE])]),
        ([mcp.Message("hi", "assistant"), mcp.Message(["hi", PICTURE])],
         [assistant(TEXT), user([TEXT, IMAGE])]),
    ],
)  # fmt: skip
def test_images_and_audio_are_written_as_blocks(given, written):
    assert sampling_messages(given, None) == written


@pytest.mark.parametrize(
    "given", [b"bytes", [b"bytes"], [1], [None], [mcp.ResourceLink("a://b")], [mcp.Message(1)]]
)
def test_unsupported_content_is_refused(given):
    with pytest.raises(ValueError, match=r"."):
        sampling_messages(given, None)


@pytest.mark.parametrize(
    "given",
    [
        [""],
        [user("")],
        [user([])],
        [{"role": "system", "content": "hi"}],
        [{"content": "hi"}],
        [{"role": "user"}],
        [user({"type": "text"})],
        [user({"text": "hi"})],
        [user({"type": "nonsense", "text": "hi"})],
        [user(USE)],
        [assistant([RESULT])],
        [user({"type": "resource_link", "uri": "a://b", "name": "b"})],
    ],
)
def test_invalid_message_is_refused(given):
    with pytest.raises(ValueError, match=r"."):
        sampling_messages(given, None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([assistant(USE)], "results of the tools that the last message uses"),
        ([assistant(USE), user("hi")], "have one tool result in the next message"),
        ([user([RESULT])], "have one tool result in the next message"),
        ([assistant(USE), user([RESULT, TEXT])], "must not contain anything else"),
        ([assistant(USE), user([RESULT, RESULT])], "have one tool result"),
        ([assistant([USE, USE | {"id": "2"}]), user([RESULT])], "have one tool result"),
        ([assistant(USE), user([RESULT | {"toolUseId": "2"}])], "have one tool result"),
    ],
)
def test_tool_use_without_a_result_in_the_next_message_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        messages_for(*given)


def test_several_tool_uses_with_results_are_valid():
    two, answer = USE | {"id": "2"}, RESULT | {"toolUseId": "2"}
    assert messages_for(assistant([TEXT, USE, two]), user([answer, RESULT]), "hi")


def test_single_tool_result_needs_no_list():
    assert messages_for(assistant(USE), user(RESULT))[1] == user(RESULT)


def test_structured_result_must_fit_the_schema_of_its_tool():
    tools = [{"name": "add", "inputSchema": {}, "outputSchema": {"type": "integer"}}]
    assert messages_for(assistant(USE), user([RESULT | {"structuredContent": 5}]), tools=tools)
    assert messages_for(assistant(USE), user([RESULT]), tools=tools)
    wrong = RESULT | {"structuredContent": "five"}
    with pytest.raises(ValueError, match="does not fit its schema: 'five' is not"):
        messages_for(assistant(USE), user([wrong]), tools=tools)
    assert messages_for(assistant(USE), user([wrong | {"isError": True}]), tools=tools)
    assert messages_for(assistant(USE), user([wrong]), tools=[{"name": "add", "inputSchema": {}}])


@pytest.mark.parametrize(
    "options",
    [
        (0, None, None), (-1, None, None), (1.5, None, None), (True, None, None), ("9", None, None),
        (1, "some", None), (1, None, "perhaps"), (1, "", None),
    ],
)  # fmt: skip
def test_invalid_option_is_refused(options):
    with pytest.raises(ValueError, match=r"."):
        check_sampling_options(*options)


@pytest.mark.parametrize("context", [None, "none", "thisServer", "allServers"])
@pytest.mark.parametrize("choice", [None, "auto", "required", "none"])
def test_valid_options_are_accepted(context, choice):
    check_sampling_options(1, context, choice)


# Answers of the model.


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ({"content": TEXT}, [TEXT]),
        ({"content": [TEXT, USE], "role": "assistant"}, [TEXT, USE]),
        ({"content": []}, []),
        ({"content": TEXT | {"secret": "of the client"}}, [TEXT]),
    ],
)
def test_content_of_the_answer_is_returned(answer, content):
    assert returned_blocks(answer) == content


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"content": None},
        {"content": "hi"},
        {"content": [None]},
        {"content": {"type": "text"}},
        {"content": {"type": ["text"]}},
        {"content": {"type": "nonsense"}},
        {"content": RESULT},
        {"content": USE, "role": "user"},
        {"content": TEXT, "role": "system"},
    ],
)
def test_invalid_answer_is_refused(answer):
    with pytest.raises(ValueError, match=r"."):
        returned_blocks(answer)


def test_content_is_one_block_or_several():
    assert _blocks(TEXT) == [TEXT] and _blocks([TEXT]) == [TEXT]
