"""Who answers in a conversation: a script, or the person at the keyboard.

The rule: an answer fits the form that was asked; what a person does not fill in, the script does.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types

from tools.telling import Teller

JSON = dict[str, Any]
SCRIPT: Mapping[str, Any] = {"starts": "2027-04-01", "ends": "2027-04-12"}
POEM = (
    "Begin in Kyoto with nothing planned. Take the slowest train to the next city on the list, "
    "eat where the locals queue, and stay a night longer than you meant to."
)


class Answers:
    """The client's side of questions: form by form, and in the place of a model."""

    def __init__(self, tell: Teller, ask: Callable[[str], str] | None = None) -> None:
        self._tell, self._ask = tell, ask
        self.forms = self.samples = 0

    @property
    def are_typed(self) -> bool:
        """Whether somebody answers who may say no."""
        return self._ask is not None

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Fill in a form, field by field."""
        if not isinstance(params, types.ElicitRequestFormParams):
            return types.ElicitResult(action="decline")
        self.forms += 1
        self._tell.say(f"❓ The server asks: {params.message}")
        fields: JSON = params.requested_schema["properties"]
        content = {name: await self._field(name, field) for name, field in fields.items()}
        return types.ElicitResult(action="accept", content=content)

    async def _field(self, name: str, field: JSON) -> Any:
        label, choices = field.get("title", name), choices_of(field)
        scripted = scripted_answer(name, field)
        for value, title in choices.items():
            self._tell.aside(f"  {value}: {title}")
        given = await self._typed(f"   {label} [{scripted}]: ")
        if not self.are_typed:
            self._tell.aside(f"{label}: {choices.get(scripted, scripted)}")
        return as_asked(given, field) if given else scripted

    async def _typed(self, prompt: str) -> str:
        return (await asyncio.to_thread(self._ask, prompt)).strip() if self._ask else ""

    async def sample(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        """Write what a model would."""
        self.samples += 1
        for message in params.messages:
            if isinstance(message.content, types.TextContent):
                self._tell.say(f"🤖 The server asks your model: {message.content.text}")
        written = await self._typed("   Your model says (Enter for a poem): ") or POEM
        content = types.TextContent(type="text", text=written)
        return types.CreateMessageResult(role="assistant", content=content, model="a-poet")


def choices_of(field: JSON) -> dict[str, str]:
    """What there is to choose from: values and what they are called."""
    titled = {one["const"]: one["title"] for one in field.get("oneOf", ())}
    return titled or {value: value for value in field.get("enum", ())}


def scripted_answer(name: str, field: JSON) -> Any:
    if field["type"] == "boolean":
        return True
    return SCRIPT.get(name) or next(iter(choices_of(field)), "")


def as_asked(given: str, field: JSON) -> Any:
    """What was typed, as the type the form wants."""
    if field["type"] == "boolean":
        return given.lower() in ("y", "yes", "true", "1")
    return given
