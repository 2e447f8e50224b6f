import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import ABSENT, BadMessage, Envelope, Unset, decode, id_key, raw_object
from mcp_hub.protocol.jsonrpc.unparsed import salvage_id

PAIR_OR_LONE = ["\\ud83d", "\\ude00", "\\ud83d\\ude00", "\\\\ud83d", "\\n", "\\u0041", "é", "x"]

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(st.text(), values, max_size=4)
ids = st.integers() | st.text(max_size=12)
spaces = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A valid message in some spelling: members in any order, blanks, escapes, unknown members."""
    members: dict[str, Any] = {"jsonrpc": "2.0"}
    what = draw(st.sampled_from(["request", "notification", "result", "error"]))
    if what != "notification":
        members["id"] = draw(ids)
    if what in ("request", "notification"):
        members["method"] = draw(st.text(min_size=1, max_size=12))
        members["params"] = draw(objects)
    elif what == "result":
        members["result"] = draw(objects)
    else:
        members["error"] = {"code": draw(st.integers(-40_000, 40_000)), "message": draw(st.text())}
    members |= draw(st.dictionaries(st.text().filter(lambda name: name not in KNOWN), values, max_size=2))
    blank, ascii_only = draw(spaces), draw(st.booleans())
    items = [
        f"{json.dumps(key)}{blank}:{blank}{json.dumps(value, ensure_ascii=ascii_only)}"
        for key, value in draw(st.permutations(list(members.items())))
    ]
    return ("{" + f"{blank},{blank}".join(items) + "}").encode()


KNOWN = ("jsonrpc", "id", "method", "params", "result", "error")


def encoded(member: object) -> bytes:
    assert isinstance(member, msgspec.Raw)
    return bytes(member)


def read(line: bytes) -> Envelope:
    message = decode(line)
    assert isinstance(message, Envelope), message
    return message


@given(st.binary() | st.text().map(str.encode))
@example(b"[" * 200_000)
@example(b'{"id":1,"result":' + b'{"a":' * 200_000)
@example(b'{"jsonrpc":"2.0","id":' + b"7" * 5000 + b"}")
@example(b'{"id":1,"id":"a\\')
def test_any_bytes_are_a_message_or_a_reason(line: bytes) -> None:
    message = decode(line)
    assert isinstance(message, Envelope | BadMessage)
    if isinstance(message, BadMessage):
        assert message.code in (-32700, -32600) and message.reason


@given(messages(), st.data())
def test_any_damage_to_a_message_is_survived(line: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(line)))
    damaged = line[:at] + data.draw(st.binary(max_size=3)) + line[at + data.draw(st.integers(0, 3)) :]
    assert isinstance(decode(damaged), Envelope | BadMessage)
    salvage_id(damaged)


@given(messages())
def test_a_valid_message_decodes_to_what_json_says(line: bytes) -> None:
    message, expected = read(line), json.loads(line)
    assert (None if message.is_answer else message.method) == expected.get("method")
    for member in ("id", "params", "result", "error"):
        raw = getattr(message, member)
        assert (raw in (ABSENT, Unset)) == (member not in expected)
        if member in expected:
            assert json.loads(encoded(raw)) == expected[member]
            assert encoded(raw) in line, "the bytes are the sender's own"


@given(ids, objects)
def test_an_answer_echoes_the_id_and_the_payload_verbatim(id_: int | str, result: dict[str, Any]) -> None:
    text, payload = json.dumps(id_).encode(), json.dumps(result).encode()
    message = read(b'{"jsonrpc":"2.0","id":%s,"method":"m"}' % text)
    usable = message.usable_id
    assert usable == text and message.id_key == id_key(text)
    answer = envelope.result_frame(usable, payload)
    assert answer.endswith(b"\n") and answer.count(b"\n") == 1
    assert json.loads(answer) == {"jsonrpc": "2.0", "id": id_, "result": result}
    assert encoded(read(answer).result) == payload


@pytest.mark.parametrize("text", [b"9007199254740993", b"1e400", b"1.10", b"1E5", b'"\\u0041"', b"-0", b"7" * 4000])
def test_numbers_and_escapes_pass_as_they_are_written(text: bytes) -> None:
    payload = b'{"x": [%s]}' % text
    assert encoded(read(b'{"jsonrpc":"2.0","id":1,"result":%s}' % payload).result) == payload


@given(st.integers(-(10**18), 10**18))
def test_an_integer_and_its_text_are_one_id(number: int) -> None:
    assert id_key(b"%d" % number) == id_key(b'"%d"' % number) == number


@given(ids, ids)
def test_different_ids_are_never_taken_for_one(a: int | str, b: int | str) -> None:
    """Only a number and its own text are one id: `"007"` is not 7."""
    if str(a) != str(b):
        assert id_key(json.dumps(a).encode()) != id_key(json.dumps(b).encode())


@pytest.mark.parametrize(("a", "b"), [("007", "7"), ("-0", "0"), ("00", "0")])
def test_texts_that_only_look_like_a_number_are_ids_of_their_own(a: str, b: str) -> None:
    assert id_key(json.dumps(a).encode()) != id_key(json.dumps(b).encode())


@pytest.mark.parametrize("text", [b"1.0", b"1e2", b"null", b"true", b"[1]", b'{"a":1}'])
def test_an_id_that_is_neither_string_nor_integer_is_unusable(text: bytes) -> None:
    request = read(b'{"jsonrpc":"2.0","id":%s,"method":"m"}' % text)
    assert request.usable_id is None and request.id_key is None


@given(st.lists(st.sampled_from(PAIR_OR_LONE), max_size=8).map("".join))
def test_lone_surrogates_become_a_replacement_and_pairs_stay(text: str) -> None:
    line = b'{"jsonrpc":"2.0","id":1,"result":{"t":"%s"}}' % text.encode()
    found = json.loads(encoded(read(line).result))["t"]
    sent = json.loads(f'"{text}"')
    assert found == "".join("�" if "\ud800" <= char <= "\udfff" else char for char in sent)


@given(st.binary(min_size=1, max_size=4))
def test_invalid_utf8_is_replaced_within_its_line(noise: bytes) -> None:
    noise = noise.translate(None, b'"\\' + bytes(range(32)))
    line = b'{"jsonrpc":"2.0","id":1,"result":{"t":"' + noise + b'"}}'
    assert json.loads(encoded(read(line).result))["t"] == noise.decode("utf-8", "replace")


NOISE = [
    *("Loading... ", "50% ", "[INFO] ready ", "2026-11-20 12:00:00 up ", '"quoted" ', "null", "{model} ", "true"),
    "-",
]


@pytest.mark.parametrize("noise", NOISE)
def test_stray_text_before_a_message_on_its_line_is_cut_off(noise: str) -> None:
    message = read(noise.encode() + b'{"jsonrpc":"2.0","id":1,"result":{"a":"\\ud83d"}}')
    assert encoded(message.id) == b"1"
    assert json.loads(encoded(message.result)) == {"a": "�"}


@given(messages(), st.integers(1, 20))
def test_an_id_that_is_salvaged_is_the_one_that_was_written(line: bytes, cut: int) -> None:
    found = salvage_id(b'{"jsonrpc":"2.0","id":42,"result":{"content":[' + line[:cut])
    assert found in (b"42", None)


@given(st.binary() | objects.map(json.dumps).map(str.encode))
def test_an_object_is_taken_apart_one_level_or_not_at_all(raw: bytes) -> None:
    members = raw_object(raw)
    if members is not None:
        assert json.loads(envelope.object_bytes(members)) == json.loads(raw)
