"""What servers answer, as clients get it: results, resource URIs in them, errors."""

import json
import re

from tests.interaction.fronts import HANDSHAKE, MODERN
from tests.interaction.json_text import changes, items, member
from tests.interaction.lossless_places import (
    BIG,
    BROKEN,
    CLASHING,
    DEEP,
    DOUBLED,
    ESCAPES,
    INTEGERS,
    LONE,
    META,
    NUMBERS,
    SPACED,
    Place,
    Row,
    over_http,
    text_of,
)

_SEAL = re.compile(r"\.[0-9a-f]{32}\.")
"""Of a server's state, for the principal that it is given to: another one with each run."""
HUB_CODES = range(1001, 1006)
"""Of errors that the hub makes itself."""


def framed(place: Place, method: str, members: str) -> str:
    """The result with these members as the server's era has it; `$NAME` is the server."""
    frame = [] if place.server_era == HANDSHAKE else ['"resultType":"complete"']
    if frame and method == "resources/read":
        frame.append('"ttlMs":5000,"cacheScope":"private"')
    return f"{{{','.join([*frame, *([members] if members else [])])}}}".replace("$NAME", place.server)


def result(members: str, method: str = "tools/call") -> Row:
    async def row(place: Place) -> list[str]:
        sent = framed(place, method, members)
        return _compared(sent, await place.asked(method, sent))

    return row


def whole(text: str, era: str, method: str = "tools/call") -> Row:
    """A whole result that only servers of this era give."""

    async def row(place: Place) -> list[str] | None:
        own = text.replace("$NAME", place.server)
        return _compared(own, await place.asked(method, own)) if place.server_era == era else None

    return row


def _compared(sent: str, answer: str) -> list[str]:
    got = member(answer, "result")
    return changes(sent, got) if got else [f"error `{member(answer, 'error', 'code')}`"]


async def asking(place: Place) -> list[str] | None:
    """A result that asks for input, where it is passed on as one."""
    if (place.era, place.server_era) != (MODERN, MODERN):
        return None
    question = (
        f'{{"mode":"form","message":"m","requestedSchema":{{"type":"object","x":{NUMBERS}}},"_meta":{META},"x":1}}'
    )
    requests = f'{{"k":{{"method":"elicitation/create","params":{question},"x":1.50}}}}'
    sent = f'{{"resultType":"input_required","inputRequests":{requests},"requestState":"x","x":{DOUBLED}}}'
    return [_SEAL.sub(".(seal).", change) for change in _compared(sent, await place.asked("tools/call", sent))]


async def large(place: Place) -> list[str]:
    size = 5_000_000
    call = f'"name":"{place.server}_big","arguments":{{"bytes":{size}}}'
    answer = (await place.request("tools/call", call))[-1]
    content = f'[{{"type":"text","text":"{"x" * size}"}}]'
    return changes(content, member(answer, "result", "content"))


TEXT = '"content":[{"type":"text","text":"x"}]'
RESULTS: dict[str, Row] = {
    "text": result(TEXT),
    "no content": result('"content":[]'),
    "no members at all": result(""),
    "`isError`": result(TEXT + ',"isError":true'),
    "unknown members": result(TEXT + ',"x-new":{"a":[null]},"另":0'),
    "unknown content types": result('"content":[{"type":"hologram","data":{"a":1}},{"no":"type"},7]'),
    "images, audio": result('"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"audio"}]'),
    "annotations of content": result(
        '"content":[{"type":"text","text":"x","annotations":{"audience":["user"],"priority":0.50,"x":1}}]'
    ),
    "`_meta`": result(f'{TEXT},"_meta":{META}'),
    "`_meta` of content": result(f'"content":[{{"type":"text","text":"x","_meta":{META}}}]'),
    "`structuredContent`, an object": result(TEXT + ',"structuredContent":{"a":[1,{"b":null}]}'),
    "`structuredContent`, an array": result(TEXT + ',"structuredContent":[1,2]'),
    "`structuredContent`, a string": result(TEXT + ',"structuredContent":"x"'),
    "`structuredContent`, a number": result(TEXT + ',"structuredContent":1.50'),
    "`structuredContent`, null": result(TEXT + ',"structuredContent":null'),
    "integers of any size": result(f'{TEXT},"structuredContent":{INTEGERS}'),
    "spelling of numbers": result(f'{TEXT},"structuredContent":{NUMBERS}'),
    "escapes, NUL, emoji": result(f'{TEXT},"structuredContent":{ESCAPES}'),
    "lone surrogates": result(f'{TEXT},"structuredContent":{LONE}'),
    "members of one name": result(f'{TEXT},"structuredContent":{DOUBLED},"x":1,"x":2'),
    "nested 100 deep": result(f'{TEXT},"structuredContent":{DEEP}'),
    "white space": result(f'"content" : [ ] ,"structuredContent":{SPACED}'),
    "line breaks between tokens": over_http(result(f'"content":[],\n"structuredContent":{BROKEN}')),
    "5 MB of text": large,
    "`resultType` behind other members": whole(f'{{"content":[],"a":{DOUBLED},"resultType":"complete"}}', MODERN),
    "`resultType` behind two of one name": whole('{"content":[],"x":1,"x":2,"resultType":"complete"}', MODERN),
    "`resultType` missing": whole('{"content":[]}', MODERN),
    "`resultType` of an extension": whole('{"resultType":"example.org/later","content":[]}', MODERN),
    "`input_required`": asking,
    "`resultType` before its time": whole('{"resultType":"complete","content":[]}', HANDSHAKE),
}

PROMPT = '"messages":[{"role":"user","content":{"type":"text","text":"x"}}]'
MORE_MESSAGES = (
    '"description":"d","messages":[{"role":"user","content":{"type":"text","text":"x"}},{"role":"assistant",'
    '"content":{"type":"image","data":"AA==","mimeType":"image/png"}}]'
)
ODD_MESSAGE = f'"messages":[{{"role":"judge","content":{{"type":"hologram","n":{INTEGERS}}},"x":1}}]'
URI = "test://$NAME/any/a"
CONTENTS = f'"contents":[{{"uri":"{URI}","text":"x","mimeType":"text/plain"}}'
ODD_CONTENTS = f'"contents":[{{"uri":"{URI}","text":{text_of(ESCAPES)},"_meta":{META},"x":{INTEGERS}}}]'
PUBLIC = '"resultType":"complete","ttlMs":60000,"cacheScope":"public"'
OTHER_RESULTS: dict[str, Row] = {
    "prompt: description, messages": result(MORE_MESSAGES, "prompts/get"),
    "prompt: unknown members, `_meta`": result(f'{PROMPT},"x":{NUMBERS},"_meta":{META}', "prompts/get"),
    "prompt: unknown content, integers": result(ODD_MESSAGE, "prompts/get"),
    "resource: text": result(CONTENTS + "]", "resources/read"),
    "resource: blob": result(f'"contents":[{{"uri":"{URI}","blob":"AAEC"}}]', "resources/read"),
    "resource: several contents": result(f'{CONTENTS},{{"uri":"{URI}#p","blob":"","x":1.50}}]', "resources/read"),
    "resource: no contents": result('"contents":[]', "resources/read"),
    "resource: unknown members, `_meta`": result(f'{ODD_CONTENTS},"_meta":{META},"x":{NUMBERS}', "resources/read"),
    "resource: members of one name": result(f'{CONTENTS}],"x":{DOUBLED},"y":1,"y":2', "resources/read"),
    "resource: public cache": whole(f"{{{PUBLIC},{CONTENTS}]}}", MODERN, "resources/read"),
    "resource: no cache hints": whole(f'{{"resultType":"complete",{CONTENTS}]}}', MODERN, "resources/read"),
    "completion: values, total": result(
        '"completion":{"values":["a"],"total":1,"hasMore":false}', "completion/complete"
    ),
    "completion: unknown members, `_meta`": result(
        f'"completion":{{"values":[],"x":{INTEGERS}}},"x":{NUMBERS},"_meta":{META}', "completion/complete"
    ),
}

# -- URIs


async def links(place: Place) -> list[str]:
    """Links and embedded resources that no other server mentions."""
    own = f"test://{place.server}/linked/%20é?q=1#f"
    block = f'{{"type":"resource_link","uri":{text_of(own)},"name":"n","x":1.50}}'
    embedded = f'{{"type":"resource","resource":{{"uri":{text_of(own)},"text":"x","_meta":{META}}}}}'
    sent = f"[{block},{embedded}]"
    answer = await place.asked("tools/call", framed(place, "tools/call", f'"content":{sent}'))
    return changes(sent, member(answer, "result", "content"))


async def clashing_links(place: Place) -> list[str]:
    """A link to what another server has under the same URI: it can be read, and is this server's."""
    link = f'{{"type":"resource_link","uri":"{CLASHING}","name":"n"}}'
    answer = await place.asked("tools/call", framed(place, "tools/call", f'"content":[{link}]'))
    (got,) = items(member(answer, "result", "content"))
    read = (await place.request("resources/read", f'"uri":{member(got, "uri")}'))[-1]
    (contents,) = items(member(read, "result", "contents"))
    assert member(contents, "text") == f'"info from {place.server}"', read
    assert member(contents, "uri") == member(got, "uri"), read
    return place.unnamed(changes(link, got))


def uri(tail: str) -> Row:
    """A URI of a template, as the server gets it and as it comes back."""

    async def row(place: Place) -> list[str]:
        asked = text_of(f"test://{place.server}/any/{tail}")
        answer = framed(place, "resources/read", f'"contents":[{{"uri":{asked},"text":"x"}}]')
        params, got = await place.traced("resources/read", f'"uri":{asked}', answer)
        if code := member(got, "error", "code"):
            return [f"error `{code}`"]
        (contents,) = items(member(got, "result", "contents"))
        return [*changes(asked, member(params, "uri"), "uri"), *changes(asked, member(contents, "uri"), "contents.uri")]

    return row


LONGEST = 8192
"""Characters of a URI."""
URIS: dict[str, Row] = {
    "links and embedded resources": links,
    "links to a URI of two servers": clashing_links,
    "read: unicode": uri("日本/é😀"),
    "read: spaces, quotes, braces": uri('a b "c" {d} <e> \\ | ^'),
    "read: percent escapes": uri("%20%2F%zz%"),
    "read: query and fragment": uri("p?q=1&r=a+b#frag/ment"),
    "read: nothing for the variable": uri(""),
    "read: control characters": uri("a\u0001\tb\u007f"),
    "read: 8 KiB": uri("x" * (LONGEST - len("test://mr/any/"))),
    "read: longer than 8 KiB": uri("x" * LONGEST),
}

# -- errors


def error(code: str, rest: str = "", message: str = '"no"') -> Row:
    async def row(place: Place) -> list[str]:
        sent = f'{{"code":{code},"message":{message}{rest}}}'
        answer = await place.refused("tools/call", sent)
        if kind := member(answer, "result", "resultType"):
            return [f"a result of type {kind[1:-1]}"]
        return _of_error(sent, member(answer, "error"))

    return row


def _of_error(sent: str, got: str) -> list[str]:
    code, original = member(got, "code"), member(got, "data", "upstream", "error")
    if int(code) in HUB_CODES:
        return [f"error `{code}` of the hub"]
    if not original:
        return changes(sent, got)
    assert json.loads(member(sent, "message")) in json.loads(member(got, "message")), got
    return [f"`{member(sent, 'code')}` → `{code}`, the original in `data`", *changes(sent, original)]


def wants(capability: str) -> str:
    return f',"data":{{"requiredCapabilities":{{"{capability}":{{}}}}}}'


URL = ',"data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://example.org/","message":"go"}]}'
SOME = ',"data":{"a":1.50},"x":1'
ERRORS: dict[str, Row] = {
    "code and message": error("1"),
    "code 0": error("0"),
    "code beyond 64 bits": error(f"-{BIG}"),
    "`data`, an object": error("7", f',"data":{{"a":{NUMBERS},"b":{ESCAPES},"upstream":1}}'),
    "`data`, a string": error("7", ',"data":"x"'),
    "`data`, null": error("7", ',"data":null'),
    "`data`, integers of any size": error("7", f',"data":{INTEGERS}'),
    "`data`, nested 100 deep": error("7", f',"data":{DEEP}'),
    "unknown members, `_meta`, members of one name": error("7", f',"x":{DOUBLED},"_meta":{META},"y":1,"y":2'),
    "escapes in the message": error("7", message=json.dumps("\0/é😀\u2028")),
    "lone surrogates": error("7", message=r'"x\ud83dy"'),
    **{code: error(code, SOME) for code in ("-32601", "-32602", "-32603", "-32700", "-32000", "-32002", "-32019")},
    "line breaks between tokens": over_http(error("7", f',\n"data":{BROKEN}')),
    "-32020": error("-32020", SOME),
    "-32021, the client has it": error("-32021", wants("sampling")),
    "-32021, the client lacks it": error("-32021", wants("teleport")),
    "-32021 without data": error("-32021"),
    "-32022": error("-32022", ',"data":{"supported":["2030-01-01"],"requested":"x"}'),
    "-32042 with a URL": error("-32042", URL),
    "-32042 without a URL": error("-32042", SOME),
    **{code: error(code, SOME) for code in ("-32050", "-32099", "-32100")},
}
