"""Which requests count as the same under one idempotency key."""

import msgspec

from mcp_hub.fronts.rest.calls import digest_of


def test_each_request_has_a_digest_of_its_own() -> None:
    same = [b'{"a":1,"b":{"c":[2]}}', b' {"b": {"c": [2]}, "a": 1}', b'{"a":0,"b":{"c":[2]},"a":1}']
    others = [
        *(b'{"a":1}', b'{"a":"1"}', b'{"a":1.0}', b'{"a":[1]}', b'{"a":{"b":1}}', b'{"a":[["b",1]]}', b'{"a":[]}'),
        *(b'{"a":{}}', b'{"a":true}', b'{"a":"True"}', b'{"a":null}', b'{"a":"None"}', b'{"a":"\'1\'"}', b"{}"),
        *(b'{"a":["\\u0000number","1"]}', b'{"a":NaN}', b'{"a":"nan"}'),
    ]
    assert len({digest_of("t", msgspec.Raw(text)) for text in same}) == 1
    assert len({digest_of("t", msgspec.Raw(text)) for text in (same[0], *others)}) == 1 + len(others)
