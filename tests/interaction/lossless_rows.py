"""The things that cross the hub, one row each: how it is sent, and what became of it."""

import json
from collections.abc import Awaitable, Callable
from itertools import starmap

from tests.interaction.fronts import HANDSHAKE, MODERN
from tests.interaction.json_text import changes, items, member, members
from tests.interaction.lossless_places import CLASHING, FIRST, INSTRUCTIONS, Place, text_of, vendor_meta

__all__ = ["DEFINITIONS", "SECTIONS", "Row"]

Row = Callable[[Place], Awaitable[list[str] | None]]
"""Measures one thing at one place: what changed, nothing if it is the same, None where there is no such thing."""

BIG = "123456789012345678901234567890"
NUMBERS = '{"a":1.10,"b":1E+2,"c":-0.0,"d":1e400,"e":0.1e1,"f":12345678901234567890.5}'
INTEGERS = f'{{"a":18446744073709551616,"b":-{BIG},"c":9007199254740993,"d":[{"9" * 400}]}}'
ESCAPES = r'{"a":"\u0000\u001f\u007f","b":"\/\u0041\u00e9","c":"é✓😀\ud83d\ude00","d":"\u2028\b\f\n\r\t\"\\","\u006bey":1}'
LONE = r'{"a":"x\ud83dy","b":"\ude00\ud83d"}'
MENDED = r'{"a":"x\ufffdy","b":"\ufffd\ufffd"}'
DOUBLED = '{"a":1,"b":{"c":1,"c":2},"a":3}'
DEEP = '{"a":' * 50 + "[" * 50 + "]" * 50 + "}" * 50
SPACED = '{ "a" : [ 1 , 2 ] ,\t"b" : { } }'
BROKEN = '{\n  "a": [\n    1\n  ]\r\n}'
META = '{"example.org/x":{"deep":[1,null,1.50]},"traceparent":"00-ab-cd-01","plain":[]}'

# -- results


def framed(place: Place, method: str, members: str) -> str:
    """The result with these members as the server's era has it."""
    if place.server_era == HANDSHAKE or method not in MAY_BE_MARKED:
        return f"{{{members}}}"
    hints = '"ttlMs":5000,"cacheScope":"private",' if method == "resources/read" else ""
    return f'{{"resultType":"complete",{hints}{members}}}'


MAY_BE_MARKED = {"tools/call", "prompts/get", "resources/read", "completion/complete"}


def result(members: str, method: str = "tools/call") -> Row:
    async def row(place: Place) -> list[str]:
        sent = framed(place, method, members)
        return _compared(sent, await place.asked(method, sent), "result")

    return row


def unframed(text: str, era: str) -> Row:
    """A whole result that only servers of this era give."""

    async def row(place: Place) -> list[str] | None:
        return _compared(text, await place.asked("tools/call", text), "result") if place.server_era == era else None

    return row


def _compared(sent: str, answer: str, key: str) -> list[str]:
    got = member(answer, key)
    return changes(sent, got) if got else [f"instead: `{answer[:80]}`"]


async def large(place: Place) -> list[str]:
    size = 5_000_000
    call = f'"name":"{place.server}_big","arguments":{{"bytes":{size}}}'
    answer = (await place.request("tools/call", call))[-1]
    content = f'[{{"type":"text","text":"{"x" * size}"}}]'
    return changes(content, member(answer, "result", "content"))


TEXT = '"content":[{"type":"text","text":"x"}]'
RESULTS = {
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
    "members of one name": result(f'{TEXT},"structuredContent":{DOUBLED},"x":1,"x":2'),
    "nested 100 deep": result(f'{TEXT},"structuredContent":{DEEP}'),
    "white space": result(f'"content" : [ ] ,"structuredContent":{SPACED}'),
    "5 MB of text": large,
    "`resultType` behind other members": unframed(f'{{"content":[],"a":{DOUBLED},"resultType":"complete"}}', MODERN),
    "`resultType` missing": unframed('{"content":[]}', MODERN),
    "`resultType` of an extension": unframed('{"resultType":"example.org/later","content":[]}', MODERN),
    "`resultType` before its time": unframed('{"resultType":"complete","content":[]}', HANDSHAKE),
}


def broken(members: str) -> Row:
    """A result over several lines, which only HTTP can carry."""

    async def row(place: Place) -> list[str] | None:
        return await result(members)(place) if place.transport == "HTTP" else None

    return row


RESULTS["line breaks between tokens"] = broken(f'"content":[],\n"structuredContent":{BROKEN}')
RESULTS["lone surrogates"] = result(f'{TEXT},"structuredContent":{LONE}')

PROMPT = '"messages":[{"role":"user","content":{"type":"text","text":"x"}}]'
CONTENTS = '"contents":[{"uri":"test://a","text":"x","mimeType":"text/plain"}'
COMPLETION = '"completion":{"values":["a"],"total":1,"hasMore":false}'
OTHER_RESULTS = {
    "prompt: several messages, description": result(
        '"description":"d","messages":[{"role":"user","content":{"type":"text","text":"x"}},{"role":"assistant",'
        '"content":{"type":"image","data":"AA==","mimeType":"image/png"}}]',
        "prompts/get",
    ),
    "prompt: unknown members, `_meta`": result(f'{PROMPT},"x":{NUMBERS},"_meta":{META}', "prompts/get"),
    "prompt: unknown content, integers": result(
        f'"messages":[{{"role":"judge","content":{{"type":"hologram","n":{INTEGERS}}},"x":1}}]', "prompts/get"
    ),
    "resource: text": result(CONTENTS + "]", "resources/read"),
    "resource: blob": result('"contents":[{"uri":"test://b","blob":"AAEC"}]', "resources/read"),
    "resource: several contents": result(
        CONTENTS + ',{"uri":"test://a#part","blob":"AA==","x":1.50}]', "resources/read"
    ),
    "resource: no contents": result('"contents":[]', "resources/read"),
    "resource: unknown members, `_meta`": result(
        f'"contents":[{{"uri":"test://a","text":{text_of(ESCAPES)},"_meta":{META},"x":{INTEGERS}}}],'
        f'"_meta":{META},"x":{NUMBERS}',
        "resources/read",
    ),
    "completion": result(COMPLETION, "completion/complete"),
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
    return await result(f'"content":[{block},{embedded}]')(place)


async def clashing_links(place: Place) -> list[str]:
    """Links to what another server has under the same URI: they can be read, and are this server's."""
    link = f'{{"type":"resource_link","uri":"{CLASHING}","name":"n"}}'
    answer = await place.asked("tools/call", framed(place, "tools/call", f'"content":[{link}]'))
    (got,) = items(member(answer, "result", "content"))
    read = (await place.request("resources/read", f'"uri":{member(got, "uri")}'))[-1]
    (contents,) = items(member(read, "result", "contents"))
    assert member(contents, "text") == f'"info from {place.server}"', read
    assert member(contents, "uri") == member(got, "uri"), read
    return [change.replace(place.server, "{server}") for change in changes(link, got)] + ["it reads the same"]


def uri(tail: str) -> Row:
    """A URI, asked for, as the server gets it and as it comes back."""

    async def row(place: Place) -> list[str]:
        asked = text_of(f"test://{place.server}/any/{tail}")
        found = changes(asked, member(await place.arrived("resources/read", f'"uri":{asked}'), "uri"), "uri")
        answer = framed(place, "resources/read", f'"contents":[{{"uri":{asked},"text":"x"}}]')
        meta = f'"example.org/answer":{text_of(answer)}'
        got = (await place.request("resources/read", f'"uri":{asked}', meta))[-1]
        (contents,) = items(member(got, "result", "contents"))
        return found + changes(asked, member(contents, "uri"), "contents.uri")

    return row


URIS = {
    "links and embedded resources": links,
    "links to a URI of two servers": clashing_links,
    "read: unicode": uri("日本/é😀"),
    "read: spaces, quotes, braces": uri('a b "c" {d} <e> \\ | ^'),
    "read: percent escapes": uri("%20%2F%zz%"),
    "read: query and fragment": uri("p?q=1&r=a+b#frag/ment"),
    "read: nothing behind the scheme's path": uri(""),
    "read: 8 KiB": uri("x" * (8192 - 20)),
    "read: control characters": uri("a\u0001\tb\u007f"),
}

# -- errors


def error(code: str, rest: str = "", message: str = '"no"') -> Row:
    async def row(place: Place) -> list[str]:
        sent = f'{{"code":{code},"message":{message}{rest}}}'
        answer = await place.refused("tools/call", sent)
        got = member(answer, "error")
        if not got:
            kind = member(answer, "result", "resultType")
            return [f"instead: a result of type `{kind}`"]
        return _of_error(sent, got)

    return row


def _of_error(sent: str, got: str) -> list[str]:
    original = member(got, "data", "upstream", "error")
    if not original:
        return changes(sent, got)
    said = json.loads(member(got, "message"))
    code, kept = member(got, "code"), json.loads(member(sent, "message"))
    named = "" if said == kept else f", its message behind “{said.removesuffix(kept).strip()}”"
    inner = changes(sent, original)
    return [f"`{code}`, the original in `data.upstream.error`{named}", *inner]


WANTED = ',"data":{"requiredCapabilities":{"%s":{}}}'
URL_WANTED = ',"data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://example.org/","message":"go"}]}'
ERRORS = {
    "code and message": error("1"),
    "code 0": error("0"),
    "a large code": error("-9007199254740993"),
    "a code beyond 64 bits": error(BIG),
    "`data`, an object": error("7", f',"data":{{"a":{NUMBERS},"b":{ESCAPES},"upstream":1}}'),
    "`data`, a string": error("7", ',"data":"x"'),
    "`data`, null": error("7", ',"data":null'),
    "`data`, integers of any size": error("7", f',"data":{INTEGERS}'),
    "`data`, nested 100 deep": error("7", f',"data":{DEEP}'),
    "unknown members": error("7", f',"x":{DOUBLED},"_meta":{META}'),
    "escapes in the message": error("7", message=r'"\u0000\/é😀\u2028"'),
    "lone surrogates": error("7", message=r'"x\ud83dy"'),
    "-32601": error("-32601", ',"data":{"a":1.50}'),
    "-32602": error("-32602", ',"data":{"a":1.50}'),
    "-32603": error("-32603", ',"data":{"a":1.50}'),
    "-32700": error("-32700"),
    "-32000": error("-32000", ',"data":{"a":1.50}'),
    "-32002": error("-32002", ',"data":{"a":1.50},"x":1'),
    "-32019": error("-32019", ',"data":{"a":1.50}'),
    "-32020": error("-32020", ',"data":{"a":1.50}'),
    "-32021, the client has it": error("-32021", WANTED % "sampling"),
    "-32021, the client lacks it": error("-32021", WANTED % "teleport"),
    "-32021 without data": error("-32021"),
    "-32022": error("-32022", ',"data":{"supported":["2030-01-01"],"requested":"x"}'),
    "-32042 with a URL": error("-32042", URL_WANTED),
    "-32042 without a URL": error("-32042", ',"data":{"a":1.50}'),
    "-32050": error("-32050", ',"data":{"a":1.50}'),
    "-32099": error("-32099", ',"data":{"a":1.50},"x":1'),
    "-32100": error("-32100", ',"data":{"a":1.50}'),
}

# -- requests


def given(method: str, name: str, value: str, *, instead: bool = False) -> Row:
    """A member of params, as the server gets it; `instead` of an ordinary one or beside those."""

    async def row(place: Place) -> list[str]:
        ordinary = place.ordinary(method)
        if instead:
            kept = [f'"{key}":{one}' for key, one in members(f"{{{ordinary}}}") if key != name]
            ordinary = ",".join(kept)
        params = await place.arrived(method, f'{ordinary},"{name}":{value}')
        return changes(value, member(params, name), name)

    return row


def arguments(value: str) -> Row:
    return given("tools/call", "arguments", value, instead=True)


def broken_arguments(value: str) -> Row:
    async def row(place: Place) -> list[str] | None:
        return await arguments(value)(place) if place.front == "HTTP" else None

    return row


def request_meta(value: str) -> Row:
    async def row(place: Place) -> list[str]:
        params = await place.arrived("tools/call", place.ordinary("tools/call"), value[1:-1])
        return changes(value, vendor_meta(params), "_meta")

    return row


async def called(place: Place) -> list[str]:
    """The name of a tool."""
    asked = member(f"{{{place.ordinary('tools/call')}}}", "name")
    got = member(await place.arrived("tools/call", place.ordinary("tools/call")), "name")
    return [change.replace(place.server + "_", "{server}_") for change in changes(asked, got, "name")]


async def clashing_read(place: Place) -> list[str]:
    asked = f'"hub://{place.server}/{CLASHING}"'
    got = member(await place.arrived("resources/read", f'"uri":{asked}'), "uri")
    return [change.replace(f"/{place.server}/", "/{server}/") for change in changes(asked, got, "uri")]


async def reserved_meta(place: Place) -> list[str]:
    """Keys that describe one hop."""
    params = await place.arrived("tools/call", place.ordinary("tools/call"), '"progressToken":"t"')
    token = member(params, "_meta", "progressToken")
    kept = member(params, "_meta", "io.modelcontextprotocol/clientInfo")
    assert token not in ("", '"t"'), params
    assert "raw-client" not in kept, params
    return ["made anew"]


REQUESTS = {
    "name of a tool": called,
    "URI of two servers": clashing_read,
    "arguments: none at all": arguments("{}"),
    "arguments: integers of any size": arguments(INTEGERS),
    "arguments: spelling of numbers": arguments(NUMBERS),
    "arguments: escapes, NUL, emoji": arguments(ESCAPES),
    "arguments: lone surrogates": arguments(LONE),
    "arguments: members of one name": arguments(DOUBLED),
    "arguments: nested 100 deep": arguments(DEEP),
    "arguments: white space": arguments(SPACED),
    "arguments: line breaks between tokens": broken_arguments(BROKEN),
    "unknown members": given("tools/call", "x-new", NUMBERS),
    "`_meta`": request_meta(META),
    "`_meta`, reserved keys": reserved_meta,
    "prompt: arguments of any type": given("prompts/get", "arguments", f'{{"a":{INTEGERS},"b":null}}'),
    "prompt: unknown members": given("prompts/get", "x-new", DOUBLED),
    "resource: unknown members": given("resources/read", "x-new", NUMBERS),
    "completion: argument": given(
        "completion/complete", "argument", f'{{"name":"who","value":"\\u0041\\/","x":{NUMBERS}}}', instead=True
    ),
    "completion: context": given("completion/complete", "context", f'{{"arguments":{{"a":"b"}},"x":{INTEGERS}}}'),
    "completion: unknown members": given("completion/complete", "x-new", DOUBLED),
}

# -- definitions

SCHEMA = (
    '"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"n":{"$anchor":'
    '"n","type":"object","properties":{"next":{"$ref":"#n"}}}},"properties":{"tree":{"$ref":"#/$defs/n"}},'
    '"$comment":"kept","x":[]}'
)
PLAIN = '"inputSchema":{"type":"object"}'
ICONS = '"icons":[{"src":"data:image/png;base64,AA==","mimeType":"image/png","sizes":["48x48"],"theme":"dark","x":1}]'
HINTS = '"annotations":{"audience":["user"],"priority":0.50,"lastModified":"2025-01-12T15:00:58Z","x":{"y":[1]}}'
ROOM = f'"x":{NUMBERS},"_meta":{META},"y":{ESCAPES},"z":{INTEGERS}'
KINDS = {"tools": "tools/list", "prompts": "prompts/list", "resources": "resources/list",
         "resourceTemplates": "resources/templates/list"}  # fmt: skip
TOOLS = {
    "tool: `$schema`, `$defs`, `$anchor`, `$ref`": SCHEMA,
    "tool: integers and spelling of numbers": f'"inputSchema":{{"type":"object","x":{INTEGERS},"y":{NUMBERS}}}',
    "tool: title, description, escapes": rf'{PLAIN},"title":"\u0041\/✓\u2028","description":"a\nb😀"',
    "tool: annotations": f'{PLAIN},"annotations":{{"title":"T","readOnlyHint":true,"openWorldHint":false,"x":[1.50]}}',
    "tool: icons": f"{PLAIN},{ICONS}",
    "tool: unknown members, `_meta`": f"{PLAIN},{ROOM}",
    "tool: members of one name": f'"inputSchema":{{"type":"object","x":{DOUBLED}}},"x":1,"x":2',
    "tool: nested 90 deep": f'"inputSchema":{{"type":"object","x":{"[" * 88 + "]" * 88}}}',
    "tool: nested deeper than 100": f'"inputSchema":{{"type":"object","x":{DEEP}}}',
    "tool: white space": f'"inputSchema": {{ "type" : "object" }} , "x": {SPACED}',
    "tool: line breaks between tokens": f'{PLAIN},\n"x": {BROKEN}',
    "tool: lone surrogates": f'{PLAIN},"x":{LONE}',
    "tool: `outputSchema` of an object": f'{PLAIN},"outputSchema":{{"type":"object","$defs":{{"a":{{}}}}}}',
    "tool: `outputSchema` of an array": f'{PLAIN},"outputSchema":{{"type":"array","items":{{}}}}',
    "tool: `outputSchema` of any type": f'{PLAIN},"outputSchema":{{"anyOf":[{{"type":"object"}}]}}',
    "tool: `execution`, no task": f'{PLAIN},"execution":{{"taskSupport":"forbidden"}}',
    "tool: `execution`, a task": f'{PLAIN},"execution":{{"taskSupport":"optional","x":1}}',
}
OTHERS = {
    "prompts": {
        "prompt: title, arguments": '"title":"T","arguments":[{"name":"a","required":true,"title":"A","x":1.50}]',
        "prompt: icons, unknown members, `_meta`": f"{ICONS},{ROOM}",
    },
    "resources": {
        "resource: title, size, annotations": f'"title":"T","mimeType":"text/plain","size":1.0e3,{HINTS}',
        "resource: icons, unknown members, `_meta`": f"{ICONS},{ROOM}",
    },
    "resourceTemplates": {
        "template: title, annotations": f'"title":"T","mimeType":"text/plain",{HINTS}',
        "template: icons, unknown members, `_meta`": f"{ICONS},{ROOM}",
    },
}
ANY_PATH = '{"uriTemplate":"test://$NAME/any/{+path}","name":"any"}'


def _named(kind: str, number: int) -> str:
    """The members that name a definition, such that the hub need not rename it."""
    return {
        "tools": f'"name":"$NAME_d{number}"',
        "prompts": f'"name":"$NAME_d{number}"',
        "resources": f'"uri":"test://$NAME/d{number}","name":"d{number}"',
        "resourceTemplates": f'"uriTemplate":"test://$NAME/d{number}/{{id}}","name":"d{number}"',
    }[kind]


def _texts(kind: str, rows: dict[str, str]) -> dict[str, str]:
    return {name: f"{{{_named(kind, i)},{rest}}}" for i, (name, rest) in enumerate(rows.items())}


LISTED = {"tools": _texts("tools", TOOLS), **{kind: _texts(kind, rows) for kind, rows in OTHERS.items()}}
DEFINITIONS = {kind: list(texts.values()) for kind, texts in LISTED.items()}
DEFINITIONS["resourceTemplates"].append(ANY_PATH)


def definition(kind: str, text: str) -> Row:
    async def row(place: Place) -> list[str] | None:
        if "\n" in text and place.transport == "stdio":
            return None
        own = text.replace("$NAME", place.server)
        id_ = members(own)[0]
        found = [one for one in await place.listed(KINDS[kind]) if id_ in members(one)]
        return changes(own, found[0]) if found else ["left out"]

    return row


async def renamed(place: Place) -> list[str]:
    found = [member(one, "name") for one in await place.listed("tools/list")]
    assert f'"{place.server}_echo"' in found
    return ["`name` `echo` → `{server}_echo`"]


async def relisted(place: Place) -> list[str]:
    """A resource that another server lists before."""
    found = [member(one, "uri") for one in await place.listed("resources/list")]
    (got,) = [uri for uri in found if CLASHING in uri and f"/{place.server}/" in uri]
    assert f'"{CLASHING}"' in found
    return [change.replace(f"/{place.server}/", "/{server}/") for change in changes(f'"{CLASHING}"', got, "uri")]


ROWS_OF_LISTS = {"tool: name": renamed, "resource: URI of two servers": relisted} | {
    name: definition(kind, text) for kind, texts in LISTED.items() for name, text in texts.items()
}

# -- notifications


def log(params: str) -> Row:
    async def row(place: Place) -> list[str]:
        meta = '"io.modelcontextprotocol/logLevel":"debug"' if place.era == MODERN else ""
        return _told(params, await place.told("logs_raw", params, meta, "notifications/message"))

    return row


def progress(rest: str) -> Row:
    """`rest` is what comes behind the token."""

    async def row(place: Place) -> list[str]:
        text = f'{{"progressToken":"$TOKEN",{rest}}}'
        got = await place.told("progress_raw", text, '"progressToken":"t"', "notifications/progress")
        return _told(text.replace("$TOKEN", "t"), got)

    return row


def _told(sent: str, got: list[str]) -> list[str]:
    assert len(got) < 2, got
    return changes(sent, got[0]) if got else ["dropped"]


NOTIFICATIONS = {
    "log: level, logger, text": log('{"level":"notice","logger":"a/b","data":"x"}'),
    "log: data, an object": log(f'{{"level":"debug","data":{{"a":{NUMBERS},"b":{ESCAPES}}}}}'),
    "log: data, null": log('{"level":"emergency","data":null}'),
    "log: data, integers of any size": log(f'{{"level":"error","data":{INTEGERS}}}'),
    "log: data, nested 100 deep": log(f'{{"level":"error","data":{DEEP}}}'),
    "log: no data": log('{"level":"error"}'),
    "log: unknown members, `_meta`": log(f'{{"level":"error","data":{DOUBLED},"x":1.50,"_meta":{META}}}'),
    "log: members in another order, white space": log('{ "data" : 1 , "level" : "error" }'),
    "log: unknown level": log('{"level":"loud","data":1}'),
    "log: lone surrogates": log(f'{{"level":"error","data":{LONE}}}'),
    "progress: value, total, message": progress(r'"progress":1,"total":2.5,"message":"\u0041✓"'),
    "progress: unknown members, `_meta`": progress(f'"progress":1,"x":{NUMBERS},"_meta":{META}'),
    "progress: members in another order": progress('"message":"x","progress":1,"x":1,"total":2'),
    "progress: spelling of numbers": progress('"progress":1.50,"total":1E+2'),
    "progress: total beyond 2^64": progress(f'"progress":1,"total":{BIG}'),
    "progress: total that is no number": progress('"progress":1,"total":"2"'),
    "progress: value beyond 1e15": progress('"progress":1e16'),
    "progress: value that is no number": progress('"progress":"1"'),
}


async def instructions(place: Place) -> list[str]:
    """What a client reads of a server that says more than a sentence."""
    method = "server/discover" if place.era == MODERN else ""
    if not method:
        return ["own"]
    got = json.loads(member((await place.request(method))[-1], "result", "instructions"))
    assert INSTRUCTIONS not in got
    return ["first sentence"] if f"{place.server} ({INSTRUCTIONS.partition('.')[0]})" in got else ["missing"]


SECTIONS: dict[str, dict[str, Row]] = {
    "Results of tools": RESULTS,
    "Results of prompts, resources and completions": OTHER_RESULTS,
    "URIs": URIS,
    "Errors": ERRORS,
    "Requests, as the server gets them": REQUESTS,
    "Definitions": ROWS_OF_LISTS,
    "Notifications": NOTIFICATIONS,
}
