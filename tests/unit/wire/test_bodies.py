"""Bodies of responses: what comes compressed is undone in pieces, one layer and no more."""

import gzip
import json
import zlib

import httpx2
import msgspec
import pytest

from mcp_hub.errors import UpstreamLost
from mcp_hub.wire.bodies import Inflater
from mcp_hub.wire.responses import JSON
from tests.unit.wire.http_wires import LIMIT, says, wired

pytestmark = pytest.mark.anyio

PIECE = 1 << 18
RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


@pytest.mark.parametrize(("encoding", "packed"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
@pytest.mark.parametrize("size", [0, 1, PIECE, 3 * PIECE + 7])
def test_pieces_make_the_whole_however_it_is_cut(encoding: str, packed: object, size: int) -> None:
    assert callable(packed)
    data = bytes(i % 251 for i in range(1000)) * (size // 1000) + b"x" * (size % 1000)
    body: bytes = packed(data)
    for cut in (1, 100, len(body)):
        inflater = Inflater(encoding)
        pieces = [piece for at in range(0, len(body), cut) for piece in inflater.feed(body[at : at + cut])]
        assert b"".join(pieces) == data
        assert all(0 < len(piece) <= PIECE for piece in pieces)


def test_a_bomb_goes_off_in_pieces_and_only_as_far_as_it_is_wanted() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    pieces = Inflater("gzip").feed(bomb)
    assert [len(next(pieces)) for _ in range(4)] == [PIECE] * 4


def test_what_is_not_what_it_says_is_an_error() -> None:
    with pytest.raises(httpx2.DecodingError, match="the body is not gzip"):
        list(Inflater("gzip").feed(b"<html>"))


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("gzip, gzip", "content-encoding 'gzip, gzip'"), ("br", "content-encoding 'br'"), ("gzip", "is not gzip")],
)
async def test_a_body_that_cannot_be_decoded_ends_its_request_alone(encoding: str, said: str) -> None:
    async with wired(says(200, json.dumps(RESULT).encode(), JSON, content_encoding=encoding)) as talk:
        with pytest.raises(UpstreamLost, match=said):
            await talk.ask()
        assert talk.wire.can_send


async def test_a_bomb_ends_its_request_at_the_limit() -> None:
    async with wired(says(200, gzip.compress(b" " * (10 * LIMIT)), JSON, content_encoding="gzip")) as talk:
        with pytest.raises(UpstreamLost, match=f"over the limit of {LIMIT} bytes"):
            await talk.ask()


async def test_a_compressed_answer_is_read() -> None:
    async with wired(says(200, gzip.compress(json.dumps(RESULT).encode()), JSON, content_encoding="gzip")) as talk:
        assert (answer := await talk.ask()).result and msgspec.json.decode(answer.result) == {"content": []}
