"""A model that has its application call one tool, in place of the one behind a login."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.e2e.scripted_models import Answer, Anthropic, Call, ScriptedModel, Turn, serving

TOOL: Final = "mcp__mcp-hub__jobs_count_words"
"""The name by which Claude Code offers the tool."""
TEXT: Final = "two words"


class OneCall(ScriptedModel):
    """Looks for the tool if the application defers it, calls it once, and is done."""

    def __init__(self) -> None:
        super().__init__(Anthropic(), ())

    def respond(self, path: str, raw: bytes) -> Answer:
        body = json.loads(raw)
        self.requests.append(body)
        turn: Turn = [Call("ToolSearch", {"query": f"select:{TOOL}"})]
        if TEXT.encode() in raw:
            turn = ["done"]
        elif any(tool.get("name") == TOOL for tool in body.get("tools", ())):
            turn = [Call(TOOL, {"text": TEXT})]
        return Anthropic().answer(turn, len(self.requests), body)


@contextmanager
def one_call() -> Iterator[dict[str, str]]:
    """The variables by which Claude Code finds the model while the block lasts."""
    with serving(OneCall()) as env:
        yield env
