"""What crosses the hub besides answers: requests on the way up, definitions in lists, notifications, instructions."""

import re

from tests.interaction.fronts import HANDSHAKE, MODERN
from tests.interaction.json_text import changes, member, members
from tests.interaction.lossless_places import (
    BIG,
    BROKEN,
    CLASHING,
    DEEP,
    DOUBLED,
    ESCAPES,
    INSTRUCTIONS,
    INTEGERS,
    LONE,
    META,
    NUMBERS,
    SPACED,
    Place,
    Row,
    over_http,
    vendor_meta,
)

# -- requests


def given(method: str, name: str, value: str, front: str | None = None) -> Row:
    """A member of params, as the server gets it; `front` is that of the clients that can send it."""

    async def row(place: Place) -> list[str] | None:
        if front not in (None, place.front):
            return None
        kept = [f'"{key}":{one}' for key, one in members(f"{{{place.ordinary(method)}}}") if key != name]
        params = await place.arrived(method, ",".join([*kept, f'"{name}":{value}']))
        return changes(value, member(params, name), name)

    return row


def arguments(value: str, front: str | None = None) -> Row:
    return given("tools/call", "arguments", value, front)


async def tool_name(place: Place) -> list[str]:
    ordinary = place.ordinary("tools/call")
    got = member(await place.arrived("tools/call", ordinary), "name")
    return place.unnamed(changes(member(f"{{{ordinary}}}", "name"), got, "name"))


async def clashing_uri(place: Place) -> list[str]:
    asked = f'"hub://{place.server}/{CLASHING}"'
    return place.unnamed(changes(asked, member(await place.arrived("resources/read", f'"uri":{asked}'), "uri"), "uri"))


async def own_meta(place: Place) -> list[str]:
    params = await place.arrived("tools/call", place.ordinary("tools/call"), META[1:-1])
    return changes(META, vendor_meta(params), "_meta")


async def reserved_meta(place: Place) -> list[str]:
    """Keys that describe one hop."""
    params = await place.arrived("tools/call", place.ordinary("tools/call"), '"progressToken":"t"')
    assert member(params, "_meta", "progressToken") not in ("", '"t"'), params
    client = member(params, "_meta", "io.modelcontextprotocol/clientInfo")
    assert bool(client) == (place.server_era == MODERN) and "raw-client" not in client, params
    return ["made anew"]


REQUESTS: dict[str, Row] = {
    "name of a tool": tool_name,
    "URI of two servers": clashing_uri,
    "arguments: none": arguments("{}"),
    "arguments: integers of any size": arguments(INTEGERS),
    "arguments: spelling of numbers": arguments(NUMBERS),
    "arguments: escapes, NUL, emoji": arguments(ESCAPES),
    "arguments: lone surrogates": arguments(LONE),
    "arguments: members of one name": arguments(DOUBLED),
    "arguments: nested 100 deep": arguments(DEEP),
    "arguments: white space": arguments(SPACED),
    "arguments: line breaks between tokens": arguments(BROKEN, front="HTTP"),
    "unknown members": given("tools/call", "x-new", NUMBERS),
    "`_meta`": own_meta,
    "`_meta`, reserved keys": reserved_meta,
    "prompt: arguments of any type": given("prompts/get", "arguments", f'{{"a":{INTEGERS},"b":null}}'),
    "prompt: unknown members": given("prompts/get", "x-new", DOUBLED),
    "resource: unknown members": given("resources/read", "x-new", NUMBERS),
    "completion: argument": given(
        "completion/complete", "argument", rf'{{"name":"who","value":"\u0041\/","x":{NUMBERS}}}'
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
LIST_METHODS = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
TEXTS = {
    "tools": {
        "tool: `$schema`, `$defs`, `$anchor`, `$ref`": SCHEMA,
        "tool: integers, spelling of numbers": f'"inputSchema":{{"type":"object","x":{INTEGERS},"y":{NUMBERS}}}',
        "tool: title, description, escapes": rf'{PLAIN},"title":"\u0041\/✓\u2028","description":"a\nb😀"',
        "tool: annotations": f'{PLAIN},"annotations":{{"title":"T","readOnlyHint":true,"x":[1.50]}}',
        "tool: icons": f"{PLAIN},{ICONS}",
        "tool: unknown members, `_meta`": f"{PLAIN},{ROOM}",
        "tool: members of one name": f'"inputSchema":{{"type":"object","x":{DOUBLED}}}',
        "tool: members of one name, outermost": f'{PLAIN},"x":1,"x":2',
        "tool: nested 90 deep": f'"inputSchema":{{"type":"object","x":{"[" * 88 + "]" * 88}}}',
        "tool: nested deeper than 100": f'"inputSchema":{{"type":"object","x":{DEEP}}}',
        "tool: white space": f'"inputSchema":{{ "type" : "object" }},"x":{SPACED}',
        "tool: white space, outermost": f'{PLAIN}, "x" : 1',
        "tool: line breaks between tokens": f'{PLAIN},"x":{BROKEN}',
        "tool: lone surrogates": f'{PLAIN},"x":{LONE}',
        "tool: `outputSchema` of an object": f'{PLAIN},"outputSchema":{{"type":"object","$defs":{{"a":{{}}}}}}',
        "tool: `outputSchema` of an array": f'{PLAIN},"outputSchema":{{"type":"array","items":{{}}}}',
        "tool: `outputSchema` of any type": f'{PLAIN},"outputSchema":{{"anyOf":[{{"type":"object"}}]}}',
        "tool: `execution`, no task": f'{PLAIN},"execution":{{"taskSupport":"forbidden"}}',
        "tool: `execution`, a task": f'{PLAIN},"execution":{{"taskSupport":"optional","x":1}}',
    },
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
ANY = '{"uriTemplate":"test://$NAME/any/{+path}","name":"any"}'


def _named(kind: str, number: int, rest: str) -> str:
    """A definition whose name is such that the hub need not change it."""
    name = {
        "tools": f'"name":"$NAME_d{number}"',
        "prompts": f'"name":"$NAME_d{number}"',
        "resources": f'"uri":"test://$NAME/d{number}","name":"d{number}"',
        "resourceTemplates": f'"uriTemplate":"test://$NAME/d{number}/{{id}}","name":"d{number}"',
    }[kind]
    return f"{{{name},{rest}}}"


NAMED = {
    kind: {name: _named(kind, i, rest) for i, (name, rest) in enumerate(texts.items())} for kind, texts in TEXTS.items()
}
DEFINITIONS = {kind: list(texts.values()) for kind, texts in NAMED.items()}
DEFINITIONS["resourceTemplates"].append(ANY)


def definition(kind: str, text: str) -> Row:
    async def row(place: Place) -> list[str] | None:
        if "\n" in text and place.transport == "stdio":
            return None
        own = text.replace("$NAME", place.server)
        name = members(own)[0]
        found = [one for one in await place.listed(LIST_METHODS[kind]) if name in members(one)]
        return changes(own, found[0]) if found else ["left out"]

    return row


async def listed_name(place: Place) -> list[str]:
    found = [member(one, "name") for one in await place.listed("tools/list")]
    (got,) = [name for name in found if name == f'"{place.server}_echo"']
    return place.unnamed(changes('"echo"', got, "name"))


async def listed_uri(place: Place) -> list[str]:
    """Of a resource that another server lists before."""
    found = [member(one, "uri") for one in await place.listed("resources/list")]
    assert f'"{CLASHING}"' in found
    (got,) = [uri for uri in found if CLASHING in uri and f"/{place.server}/" in uri]
    return place.unnamed(changes(f'"{CLASHING}"', got, "uri"))


async def instructions(place: Place) -> list[str] | None:
    """Of a server; a handshake may come before the server has said anything."""
    if place.era == HANDSHAKE:
        return None
    got = member((await place.request("server/discover"))[-1], "result", "instructions")
    assert re.search(rf"{place.server} \(\d+\): {INSTRUCTIONS.partition('.')[0]}", got), got
    return ["in those of the hub"]


LISTED: dict[str, Row] = {
    "tool: name": listed_name,
    "resource: URI of two servers": listed_uri,
    **{name: definition(kind, text) for kind, texts in NAMED.items() for name, text in texts.items()},
    "instructions": instructions,
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
    return changes(sent, got[0]) if got else ["not passed on"]


NOTIFICATIONS: dict[str, Row] = {
    "log: level, logger, text": log('{"level":"notice","logger":"a/b","data":"x"}'),
    "log: data, an object": log(f'{{"level":"debug","data":{{"a":{NUMBERS},"b":{ESCAPES}}}}}'),
    "log: data, null": log('{"level":"emergency","data":null}'),
    "log: data, integers of any size": log(f'{{"level":"error","data":{INTEGERS}}}'),
    "log: data, nested 100 deep": log(f'{{"level":"error","data":{DEEP}}}'),
    "log: no data": log('{"level":"error"}'),
    "log: unknown members, `_meta`, members of one name": log(
        f'{{"level":"error","data":{DOUBLED},"x":1,"x":1.50,"_meta":{META}}}'
    ),
    "log: white space": log('{ "data" : 1 , "level" : "error" }'),
    "log: line breaks between tokens": over_http(log(f'{{"level":"error",\n"data":{BROKEN}}}')),
    "log: unknown level": log('{"level":"fatal","data":1}'),
    "log: lone surrogates": log(f'{{"level":"error","data":{LONE}}}'),
    "progress: value, total, message": progress(r'"progress":1,"total":2.5,"message":"\u0041✓"'),
    "progress: unknown members, `_meta`": progress(f'"progress":1,"x":{NUMBERS},"_meta":{META}'),
    "progress: members in another order": progress('"message":"x","progress":1,"x":1,"total":2'),
    "progress: spelling of numbers": progress('"progress":1.50,"total":1E+2'),
    "progress: total beyond 2^64": progress(f'"progress":1,"total":{BIG}'),
    "progress: total that is not a number": progress('"progress":1,"total":"2"'),
    "progress: value beyond 1e15": progress('"progress":1e16'),
    "progress: value that is not a number": progress('"progress":"1"'),
}
