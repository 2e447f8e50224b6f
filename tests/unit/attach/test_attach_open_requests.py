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
