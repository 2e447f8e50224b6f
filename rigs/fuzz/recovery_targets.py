"""Fuzz targets of what is recovered from lines that are no messages: several on one, lists with broken elements."""

import json
from random import Random

from mcp_hub.protocol.jsonrpc.envelope import ABSENT, BadMessage, Envelope, Unset, decode
from mcp_hub.protocol.jsonrpc.repair import NOT_JSON, placeholder, several
from mcp_hub.protocol.jsonrpc.unparsed import is_answer
from rigs.fuzz.mutate import json_bytes, mutated_json
from rigs.fuzz.target import Target
from rigs.fuzz.wire_targets import HEADER_KEYS, KEYS, SCHEMAS

NOISE = ("", "INFO done ", "{model} ", '{"level":"info"} ', "\ufeff", "[INFO] ", "caf\xe9: ")
LAYOUTS = (
    '{"jsonrpc":"2.0","id":7,"result":R}',
    '{"result":R,"jsonrpc":"2.0","id":7}',
    '{"id":7,"jsonrpc":"2.0","result":R}',
    '{"result":R,"id":7,"jsonrpc":"2.0"}',
)
UNFIT = ("NaN", "[1,]", '{"a":NaN}', '{"a":"\\x41"}', "{'a':[]}", '["\t"]', "[undefined]", "[" * 2000 + "]" * 2000)


def make_several(rng: Random) -> bytes:
    """Messages in any layout, noise before them, half of one behind."""
    results = [mutated_json({"rows": [{"id": 1}, {"jsonrpc": "2.0"}]}, KEYS, rng) for _ in range(rng.randint(1, 5))]
    messages = [rng.choice(LAYOUTS).replace("R", json.dumps(result)) for result in results]
    cut = rng.randrange(1, len(messages[0])) if rng.random() < 0.3 else 0
    return json_bytes([rng.choice(NOISE), messages, messages[0][:cut]])


def check_several(data: bytes) -> None:
    noise, messages, half = json.loads(data)
    whole = [decode(message.encode()) for message in messages]
    if noise not in NOISE or not all(map(_is_whole, whole, messages)):
        return  # deeper than can be read, or made smaller
    line = "".join((noise, *messages, half)).encode()
    found = decode(line)
    parts, rest = several(line, found) if isinstance(found, BadMessage) else ([line], None)
    read = [one for one in map(decode, parts) if isinstance(one, Envelope) and one.jsonrpc is not Unset]
    assert read == whole[: len(read)] and len(read) >= len(whole) - bool(half), "a message was lost"
    assert (rest is not None) == bool(half)


def _is_whole(message: Envelope | BadMessage, text: str) -> bool:
    begins = text.startswith(('{"jsonrpc":', '{"result":', '{"id":'))
    return isinstance(message, Envelope) and begins and message.jsonrpc == "2.0" and message.id is not ABSENT


def make_list(rng: Random) -> bytes:
    """A list in any layout, some of whose elements are no JSON."""
    elements = [json.dumps(mutated_json(schema, HEADER_KEYS, rng)) for schema in SCHEMAS for _ in range(2)]
    for _ in range(rng.randint(1, 3)):
        elements.insert(rng.randint(0, len(elements)), rng.choice(UNFIT))
    return json_bytes([rng.choice(LAYOUTS), elements, rng.choice(("", " ", " \t"))])


def check_list(data: bytes) -> None:
    layout, elements, blank = json.loads(data)
    if layout not in LAYOUTS or blank.strip() or not elements or not all(map(_is_element, elements)):
        return  # made smaller
    list_ = f'{{"tools":[{blank}{f"{blank},{blank}".join(elements)}{blank}]}}'
    line = layout.replace("R", list_).encode()
    bad = decode(line)
    if isinstance(bad, Envelope):
        return
    assert bad.id in (b"7", None) and is_answer(line)
    result = placeholder(bad, line, "tools/list").result
    assert result is not ABSENT, "a list was lost"
    found = json.loads(bytes(result))["tools"]
    assert len(found) == len(elements)
    for one, element in zip(found, elements, strict=True):
        if element in UNFIT:
            assert json.loads(NOT_JSON) in json.dumps(one)
        elif "\\ud" not in element:
            assert one == json.loads(element)


def _is_element(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text in UNFIT
    return True


RECOVERY_TARGETS = (Target("several", make_several, check_several), Target("list", make_list, check_list))
