"""What is left open of many requests: the same, whether a line is parsed or known by its id alone."""

import json

import pytest

from mcp_hub.attach.open_requests import UnansweredRequests

PYTHON, SCRIPT, SPACED = "python", "script", "spaced"


def call(id_: int | str, style: str, tool: str = "t") -> bytes:
    params = {"name": tool, "arguments": {"id": 7}}
    if style == SCRIPT:
        message = {"method": "tools/call", "params": params, "jsonrpc": "2.0", "id": id_}
    else:
        message = {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}
    return json.dumps(message, separators=None if style == SPACED else (",", ":")).encode() + b"\n"


def answer(id_: int | str) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":{"content":[]}}\n' % json.dumps(id_).encode()


def unknown(requests: UnansweredRequests) -> list[object]:
    """The calls that get an error, because nobody knows whether they were done."""
    return [json.loads(error)["id"] for error in requests.again(takes_streams=False).errors]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT, SPACED])
def test_a_call_is_open_until_it_is_answered(style: str) -> None:
    requests = UnansweredRequests()
    requests.asked(call(1, style) + call(2, style) + call(3, style))
    requests.answered(answer(1) + answer(3))
    assert requests.is_open and unknown(requests) == [2] and not requests.is_open


@pytest.mark.parametrize("style", [PYTHON, SCRIPT, SPACED])
def test_an_id_that_is_used_again_is_open_again(style: str) -> None:
    requests = UnansweredRequests()
    requests.asked(call(1, style))
    requests.answered(answer(1))
    requests.asked(call(1, style))
    assert unknown(requests) == [1]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT, SPACED])
def test_a_number_and_a_text_are_different_ids(style: str) -> None:
    requests = UnansweredRequests()
    requests.asked(call(5, style) + call("5", style))
    requests.asked(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"5"}}\n')
    assert unknown(requests) == [5]
    requests.asked(call(5, style))
    requests.answered(answer("5"))
    assert unknown(requests) == [5]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT, SPACED])
def test_a_call_has_its_stream_and_a_cancelled_one_is_not_open(style: str) -> None:
    requests = UnansweredRequests()
    requests.asked(call(1, style) + call(2, style))
    requests.runs_as(b"#stream 1 st_1\n")
    requests.asked(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}\n')
    assert requests.streams() == "1 st_1" and unknown(requests) == [1]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT, SPACED])
@pytest.mark.parametrize("portion", [1, 32])
def test_of_many_calls_only_those_are_open_that_have_no_answer(style: str, portion: int) -> None:
    requests, unanswered = UnansweredRequests(), {3, 500, 998, 999}
    for first in range(0, 1000, portion):
        ids = range(first, min(first + portion, 1000))
        requests.asked(b"".join(call(id_, style, "x" * 200) for id_ in ids))
        requests.answered(b"".join(answer(id_) for id_ in ids if id_ not in unanswered))
    requests.runs_as(b"#stream 998 st_A\n")
    assert requests.streams() == "998 st_A"
    again = requests.again(takes_streams=True)
    assert {json.loads(error)["id"] for error in again.errors} == unanswered - {998}
    assert again.lines == [call(998, style, "x" * 200)]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT])
def test_other_messages_among_calls_are_understood(style: str) -> None:
    requests = UnansweredRequests()
    level = b'{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"info"}}\n'
    nested = b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":{"jsonrpc":"2.0","id":1}}}\n'
    requests.asked(call(1, style) + level + call(2, style) + nested)
    requests.answered(b'{"jsonrpc":"2.0","method":"n","params":{"m":{"jsonrpc":"2.0","id":1,"result":{}}}}\n')
    requests.answered(b'{"jsonrpc":"2.0","id":"l","result":{}}\n{"jsonrpc":"2.0","id":9,"result":{}}\n' + answer(2))
    again = requests.again(takes_streams=False)
    assert again.lines == [level] and again.known == {"l"}
    assert [json.loads(error)["id"] for error in again.errors] == [1]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT])
def test_of_a_long_call_only_its_name_is_kept(style: str) -> None:
    requests = UnansweredRequests()
    requests.asked(call(1, style).replace(b'{"id":7}', b'"%b"' % (b"x" * 100_000)) + call(2, style))
    assert all(len(line) < 1000 for line in requests._calls.values())
    requests.runs_as(b"#stream 1 st_A\n")
    requests.runs_as(b"#stream 2 st_B\n")
    long, short = requests.again(takes_streams=True).lines
    assert short == call(2, style)
    assert json.loads(long)["params"] == {"name": "t"}


def test_what_passes_does_not_pile_up() -> None:
    requests, answers = UnansweredRequests(), b"".join(map(answer, range(300)))
    for _ in range(200):
        requests.answered(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}\n')
        requests.answered(answers)
        assert sum(len(text) for _, text in requests._noted) <= 1 << 16
