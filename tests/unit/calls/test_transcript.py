"""The output so far as text for a model."""

import pytest

from mcp_hub.calls.reading import transcript
from mcp_hub.calls.reading.transcript import Transcript
from mcp_hub.events import Attempt, Delta, InputRequired, Reset
from mcp_hub.masking import visible


def test_text_of_a_failed_attempt_is_not_shown() -> None:
    said = Transcript(100)
    for event in (Delta(b'[{"type":"text","text":"one"}]'), Attempt(2, "lost", 0.5), Reset(2, "lost", 2)):
        said.add(event)
    assert said.text == ""
    said.add(Delta(b'[{"type":"text","text":"two"}]'))
    assert said.text == "two"


def test_only_the_beginning_of_a_long_question_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def measured(text: str) -> str:
        sizes.append(len(text))
        return visible(text)

    monkeypatch.setattr(transcript, "visible", measured)
    params = b'{"message":"%s"}' % (b"a \\u001b " * 100_000)
    text = transcript.question_text(InputRequired("1", "elicitation/create", params))
    assert len(text) == 200 and "\x1b" not in text and sizes[0] <= 4000
