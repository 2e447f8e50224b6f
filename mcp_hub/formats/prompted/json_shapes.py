"""Objects that mean calls: members for the name and the arguments, and arguments beside the name."""

import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from mcp_hub.formats.prompted.characters import MalformedCall, shown
from mcp_hub.formats.prompted.loose_json import read_value, skipped
from mcp_hub.formats.prompted.output import Tools, resolved
from mcp_hub.schema import allowed_types, properties

_NAMES: Final = frozenset(
    "name tool toolname function functionname func call toolcall action recipientname method".split()
)
_CANONICAL: Final = ("arguments", "parameters")
_ARGUMENTS: Final = frozenset(
    "arguments parameters args params input inputs kwargs argument parameter toolinput toolargs toolarguments "
    "toolparameters functionargs functionarguments functionparameters actioninput actionargs".split()
)
_CALLS: Final = frozenset("toolcalls calls functioncalls tools tool toolcall functioncall function call".split())
_BESIDE: Final = frozenset(
    "type id index callid toolcallid toolid thought thoughts thinking reason reasoning explanation rationale comment "
    "note purpose status role".split()
)
"""Members about a call, beside its name and arguments."""
_RESULTS: Final = frozenset(("content", "output", "result", "results", "error", "response"))
_DEFINITION: Final = ("inputschema", "parameters", "arguments")

_CALLED: Final = re.compile(
    r"(?:[\"'“‘`=;]|&quot;|: ?)(?:functions?\.)?(?P<quoted>[\w.:/@-]*[\w/@-])(?:\(\))?(?:[\"'”’`>&,}]|:\d)"
    r"|(?:functions?\.)?(?<![\w/@-])(?P<called>[\w.:/@-]*[\w/@-])\s*(?:[({<\[|｜]|:\s*[{\d])"
    r"|(?:\A|>)\s*(?P<first>[\w.:/@-]*[\w/@-])[ \t]*(?=\n|\Z|<)"
)

Members = Mapping[str, str]
"""Keys and values of an object, as JSON."""


def members_of(value: str) -> Members:
    """The members of an object; empty for any other value."""
    try:
        members = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {key: bytes(raw).decode() for key, raw in members.items()}


def calls_in(value: str, tools: Tools) -> list[tuple[str, str]]:
    """The calls that a value means, by name and arguments; none for a definition or a result of a tool.

    Raises: MalformedCall.
    """
    if value.lstrip()[:1] == "[":
        items = msgspec.json.decode(value, type=list[msgspec.Raw])
        return [call for item in items for call in calls_in(bytes(item).decode(), tools)]
    members = members_of(value)
    if not members and value.strip() != "{}":
        raise MalformedCall(f"expected an object with the name and the arguments of a call, found {shown(value)}")
    if (inside := _inside(members, tools)) is not None:
        return inside
    if _describes(members):
        return []
    name, key = _name(members, tools)
    beside_name = {member: text for member, text in members.items() if member != key}
    return [(name, _arguments(name, beside_name, tools))]


def is_call_object(value: str, name: str, tools: Tools) -> bool:
    """Whether an object behind a name is its call, not its arguments."""
    members = members_of(value)
    names = [text for key, text in members.items() if _plain(key) in _NAMES]
    listed = properties(_schema(name, tools))
    is_named = any(resolved(_text(text), tools) == resolved(name, tools) for text in names)
    return is_named and arguments_in(*members) and not set(members) <= set(listed)


def is_call_key(key: str, tools: Collection[str]) -> bool:
    """Whether an object with this key first may be a call."""
    plain = _plain(key)
    return plain in _NAMES | _ARGUMENTS | _CALLS | _BESIDE or key in tools


def arguments_in(*keys: str) -> bool:
    """Whether one of the keys is one for arguments."""
    return any(_plain(key) in _ARGUMENTS for key in keys)


def checked(name: str, arguments: str, source: str, tools: Tools) -> str:
    """The arguments. A number that begins with 0 must not stand for a text."""
    if re.search(r"[:=]\s*[+-]?0\d", source):
        schema = _schema(name, tools)
        for key, text in members_of(arguments).items():
            allowed = allowed_types(properties(schema).get(key), schema)
            if re.fullmatch(r"-?\d+", text) and "string" in allowed:
                raise MalformedCall(f'"{key}" is a text without quotes')
    return arguments


def _inside(members: Members, tools: Tools) -> list[tuple[str, str]] | None:
    """The calls in an envelope, or by name: `{"tool_calls": […]}`, `{"function": {…}}`, `{"add": {…}}`."""
    objects = {key: text for key, text in members.items() if text[:1] in "{["}
    envelopes = [key for key, text in objects.items() if _plain(key) in _CALLS]
    if len(envelopes) == 1 and not any(
        resolved(_text(members[key]), tools) for key in members if _plain(key) in _NAMES
    ):
        extra = {_plain(key) for key in members} - {_plain(envelopes[0])}
        if extra <= _BESIDE | _RESULTS | _NAMES and envelopes[0] not in tools:
            return calls_in(objects[envelopes[0]], tools)
    if (
        members
        and members.keys() <= set(tools)
        and all(text[:1] == "{" or text in ("null", '""') for text in members.values())
    ):
        if not any(_plain(key) in _NAMES and members[key][:1] == '"' for key in members):
            return [(key, text if text[:1] == "{" else "{}") for key, text in members.items()]
    return None


def _describes(members: Members) -> bool:
    plain = {_plain(key): text for key, text in members.items()}
    schema = next((members_of(plain[key]) for key in _DEFINITION if key in plain), {})
    if "description" in plain and (schema.get("type") == '"object"' or "properties" in schema):
        return True
    return not plain.keys().isdisjoint(_RESULTS) and plain.keys() <= _RESULTS | {"name", "role", "toolcallid", "type"}


def _name(members: Members, tools: Tools) -> tuple[str, str]:
    """The name, and its key: the only member for names that is one of a tool's."""
    texts = {key: _text(text) for key, text in members.items() if _plain(key) in _NAMES and text[:1] == '"'}
    resolved_keys = [key for key, text in texts.items() if resolved(text, tools) is not None]
    if not resolved_keys and len(texts) == 1:
        resolved_keys = list(texts)
    if len({texts[key] for key in resolved_keys}) > 1:
        raise MalformedCall(f"expected one name of a tool, found {' and '.join(texts[key] for key in resolved_keys)}")
    if not resolved_keys:
        raise MalformedCall('expected "name" with the name of a tool')
    return texts[resolved_keys[0]], resolved_keys[0]


def _arguments(name: str, members: Members, tools: Tools) -> str:
    schema = _schema(name, tools)
    listed = properties(schema)
    argument_keys = [key for key in members if key in _CANONICAL] or [
        key
        for key, text in members.items()
        if _plain(key) in _ARGUMENTS and (key not in listed or _fits(text, listed, key))
    ]
    ambiguous = [
        key for key in argument_keys if key in listed and key not in _CANONICAL and _allows_object(schema, key)
    ]
    if ambiguous:
        raise MalformedCall(f'"{ambiguous[0]}" could be the arguments, or one of them. Write them into "arguments"')
    if len({members[key] for key in argument_keys}) > 1:
        raise MalformedCall("the arguments occur twice")
    beside_name = {key: text for key, text in members.items() if key not in argument_keys}
    if not argument_keys:
        return _flat(name, beside_name, listed)
    arguments = _object(members[argument_keys[0]])
    inner = members_of(arguments)
    beside = [key for key in beside_name if key in listed and key not in inner and _plain(key) not in _BESIDE]
    if beside:
        raise MalformedCall(f'"{beside[0]}" stands beside the arguments of {name}')
    return arguments


def _fits(text: str, listed: Collection[str], key: str) -> bool:
    inside = members_of(text)
    return bool(inside) and inside.keys() <= set(listed)


def _allows_object(schema: Mapping[str, object], key: str) -> bool:
    allowed = allowed_types(properties(schema).get(key), schema)
    return not allowed or "object" in allowed


def _flat(name: str, members: Members, listed: Mapping[str, object]) -> str:
    """Arguments beside the name."""
    arguments = {key: text for key, text in members.items() if key in listed}
    extra = {key: text for key, text in members.items() if key not in listed and _plain(key) not in _BESIDE}
    if not extra:
        return _joined(arguments)
    if len(extra) == 1 and not arguments:
        (text,) = extra.values()
        if _fits(text, listed, ""):
            return text
    raise MalformedCall(f'expected "arguments" of {name}, found "{next(iter(extra))}"')


def _object(text: str) -> str:
    """The value of a member for arguments as an object."""
    if text == "null" or text == "[]":
        return "{}"
    if text[:1] == '"':
        inside = _text(text)
        start = skipped(inside, 0)
        if start == len(inside) or inside.strip() in ("null", "None"):
            return "{}"
        try:
            text, end, missing = read_value(inside, start)
        except EOFError:
            missing, end = 1, start
        if missing or inside[end:].strip():
            raise MalformedCall("the arguments are a string that is not the text of an object")
    elif text[:1] == "[":
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
        text = bytes(items[0]).decode() if len(items) == 1 else text
    if text.lstrip()[:1] != "{":
        raise MalformedCall(f"expected an object as arguments, found {shown(text)}")
    return text.strip()


def _joined(members: Members) -> str:
    return "{" + ", ".join(f"{msgspec.json.encode(key).decode()}: {text}" for key, text in members.items()) + "}"


def _schema(name: str, tools: Tools) -> Mapping[str, object]:
    tool = resolved(name, tools)
    return {} if tool is None else tools[tool]


def _plain(key: str) -> str:
    return re.sub(r"[_\s-]", "", key).lower()


def _text(text: str) -> str:
    return msgspec.json.decode(text, type=str) if text[:1] == '"' else ""


def are_known(calls: Collection[tuple[str, str]], tools: Tools) -> bool:
    return all(resolved(name, tools) is not None for name, _ in calls)


def names_a_tool(text: str, tools: Tools) -> bool:
    """Whether a tool's name stands in the text, as a word."""
    names = {name.casefold() for name in tools}
    return any(word[0].casefold() in names for word in re.finditer(r"[\w./@-]*[\w/@-]", text))


def has_arguments(text: str) -> bool:
    """Whether a text names arguments, as JSON does."""
    return any(arguments_in(key[1]) for key in re.finditer(r"[\"'“]?([\w -]+)[\"'”]?\s*[:=]", text))


def is_like_call(text: str, tools: Tools) -> bool:
    """Whether a tool's name stands in the text as in calls."""
    names = {name.casefold() for name in tools}
    text = re.sub(r"\\u00([0-7][0-9a-fA-F])", lambda code: chr(int(code[1], 16)), text)
    return any(
        not names.isdisjoint((name, name.rpartition(":")[2], name.rpartition(":")[0], name.rpartition(".")[2]))
        for argument_keys in _CALLED.finditer(text)
        if (
            name := (argument_keys["quoted"] or argument_keys["called"] or argument_keys["first"])
            .casefold()
            .removeprefix("functions.")
        )
    )


def has_whole_arguments(value: str, missing: int, text: str) -> bool:
    """Whether only the last brace is missing, behind whole arguments or calls."""
    if missing != 1 or not text.rstrip().endswith(("}", "]")):
        return False
    keys = list(members_of(value))
    return value.lstrip()[:1] == "[" or (bool(keys) and arguments_in(keys[-1]))
