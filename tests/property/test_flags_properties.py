import json
import unicodedata
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.flags import decoded, flags_of, folded, hidden_in
from mcp_hub.catalog.pins import Record, encoded, findings_of, fingerprint, read, seen

# what is invisible, what it hides among, and what makes it legitimate
SPICE = (
    "\u200b\u200c\u200d\u00ad\u202e\u2066\u200f\ufe0f\ufe00\ufeff\U000e0041\U000e0100\U000e007f\x1b\x00\x9b\u2062\u180e"
)
BASES = "a1 \n#[m\u0915\u094d\u0645\u05d0\u0e01\u1820\u845b\u2764\U0001f3f4\U0001f468"
texts = st.text(st.sampled_from(SPICE + BASES) | st.characters(exclude_categories=["Cs"]), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
NEVER_FINE = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u00ad\u2060\u2062\ufeff\x1b\x00\x9b\x7f")


@given(texts)
def test_nothing_that_is_never_needed_goes_unflagged_and_every_flag_is_printable(text: str) -> None:
    found = list(hidden_in("d", text))
    if NEVER_FINE & set(text):
        assert found
    for flag in found:
        assert flag.text.isascii() or all(unicodedata.category(char) not in ("Cc", "Cf", "Cs") for char in flag.text)
        assert "<U+" in flag.text


@given(texts)
def test_decoded_text_holds_nothing_that_would_be_flagged(text: str) -> None:
    shown = decoded(text, 10_000)
    assert "\n" not in shown and list(hidden_in("d", shown)) == []
    assert decoded(shown, 10_000) == shown


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])))
def test_plain_ascii_hides_nothing(text: str) -> None:
    assert list(hidden_in("d", text)) == [] and decoded(text, 10_000) == text


@given(st.dictionaries(st.sampled_from(["name", "description", "inputSchema", "_meta", "x"]), values))
def test_any_definition_can_be_looked_through_and_nothing_is_altered(tool: dict[str, Any]) -> None:
    raw = json.dumps(tool).encode()
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    before = {name: bytes(value) for name, value in fields.items()}
    flags = flags_of(fields)
    assert {name: bytes(value) for name, value in fields.items()} == before
    if any(list(hidden_in("d", text)) for text in _texts(tool)):
        assert flags


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for own in value.values() for text in _texts(own))]
    if isinstance(value, list):
        return [text for own in value for text in _texts(own)]
    return [value] if isinstance(value, str) else []


@given(texts, st.sampled_from(["_", "-", " ", ""]))
def test_case_width_and_separators_make_no_other_look(name: str, joint: str) -> None:
    assert folded(f"{joint}{name}{joint}") == folded(name)
    assert folded("getUser") == folded(f"get{joint}USER")


tools = st.dictionaries(
    st.sampled_from("abcd"), st.builds(lambda text: {"description": text}, st.sampled_from(["1", "2", "3"])), max_size=4
)


@given(st.lists(tools, max_size=6), st.sampled_from(["warn", "block"]))
def test_what_is_listed_is_either_as_approved_or_a_finding(lists: list[dict[str, Any]], policy: Any) -> None:
    """Whatever a server lists, and however often the record goes to disk and back."""
    record = Record()
    trusted: dict[str, str] = {}
    for listed in lists:
        texts = {name: json.dumps({"name": name, **tool}) for name, tool in listed.items()}
        offered = {
            name: fingerprint(msgspec.json.decode(text, type=dict[str, msgspec.Raw])) for name, text in texts.items()
        }
        for name, tool in listed.items():
            if policy == "warn" or not record.tools:
                trusted.setdefault(name, tool["description"])
        record = read(encoded(seen(record, offered, policy, 1.0)))
        found = findings_of("s", record, offered, policy)
        assert set(found) == {name for name, tool in listed.items() if trusted.get(name) != tool["description"]}
        assert all(own.is_held == (policy == "block") for own in found.values())
