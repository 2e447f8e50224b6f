"""The output so far as text for a model."""

from mcp_hub.calls.hub_tools.transcript import Transcript
from mcp_hub.events import Attempt, Delta, Reset


def test_text_of_a_failed_attempt_is_not_shown() -> None:
    said = Transcript(100)
    for event in (Delta(b'[{"type":"text","text":"one"}]'), Attempt(2, "lost", 0.5), Reset(2, "lost", 2)):
        said.add(event)
    assert said.text == ""
    said.add(Delta(b'[{"type":"text","text":"two"}]'))
    assert said.text == "two"
