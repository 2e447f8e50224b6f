"""Resources, templates, prompts and completions of the fixture server: what is there and how it is read."""

import base64
from typing import Any

from tests.upstreams.eras import HANDSHAKE, INVALID_PARAMS, Request, RpcError
from tests.upstreams.instance import Instance

SHARED_URI = "test://shared/info"
RESOURCE_NOT_FOUND = -32002
PNG = bytes.fromhex("89504e470d0a1a0a") + bytes(range(256))

PROMPTS: list[dict[str, Any]] = [
    {
        "name": "greet",
        "title": "Greeting",
        "description": "Greets somebody.",
        "arguments": [
            {"name": "who", "description": "Whom to greet.", "required": True},
            {"name": "style", "description": "How to greet.", "required": False},
        ],
    },
    {"name": "fixed", "description": "Always the same text."},
    {
        "name": "asking",
        "description": "Asks a form question first.",
        "arguments": [{"name": "nonce", "description": "Is in the question and in the text."}],
    },
]
ASKING = "asking"

PEOPLE = ("alan", "alice", "albert", "bob", "boris", "zoë")
ITEMS = ("1", "10", "11", "12", "2", "20")


def asking_uri(name: str) -> str:
    """The resource that asks before it is read; it is not listed, the template has it."""
    return f"test://{name}/item/asking"


def prompts(instance: Instance) -> list[dict[str, Any]]:
    return PROMPTS + _without_text(instance.prompts)


def _without_text(added: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key != "text"} for one in list(added.values())]


def resources(instance: Instance) -> list[dict[str, Any]]:
    name = instance.name
    return [
        {
            "uri": f"test://{name}/readme",
            "name": "readme",
            "title": f"Readme of {name}",
            "mimeType": "text/plain",
            "size": len(_readme(name)),
        },
        {"uri": SHARED_URI, "name": "info", "description": "Every instance has this URI.", "mimeType": "text/plain"},
        {"uri": f"test://{name}/blob", "name": "blob", "mimeType": "image/png"},
    ]


def templates(name: str) -> list[dict[str, Any]]:
    return [{"uriTemplate": f"test://{name}/item/{{id}}", "name": "item", "mimeType": "text/plain"}]


def read_resource(instance: Instance, request: Request) -> dict[str, Any]:
    """The contents under the URI that was asked for, which is echoed.

    Raises: `RpcError` -32002 (handshake) or -32602 (modern) for a URI that is not there.
    """
    name, uri = instance.name, request.params.get("uri")
    texts = {f"test://{name}/readme": _readme(name), SHARED_URI: f"info from {name}"}
    item = f"test://{name}/item/"
    if uri in texts:
        return contents(uri, mimeType="text/plain", text=texts[uri])
    if uri == f"test://{name}/blob":
        return contents(uri, mimeType="image/png", blob=base64.b64encode(PNG).decode())
    if isinstance(uri, str) and uri.startswith(item) and uri != item:
        return contents(uri, mimeType="text/plain", text=f"item {uri.removeprefix(item)} of {name}")
    code = RESOURCE_NOT_FOUND if request.era == HANDSHAKE else INVALID_PARAMS
    raise RpcError(code, "Resource not found", {"uri": uri})


def _readme(name: str) -> str:
    return f"This is {name}."


def contents(uri: str, **fields: str) -> dict[str, Any]:
    return {"contents": [{"uri": uri, **fields}]}


def get_prompt(instance: Instance, request: Request) -> dict[str, Any]:
    name, prompt = instance.name, request.params.get("name")
    arguments = request.params.get("arguments") or {}
    if prompt == "fixed":
        return prompt_message("Always the same.", f"fixed text of {name}")
    if added := instance.prompts.get(str(prompt)):
        return prompt_message("It was added.", added["text"])
    if prompt != "greet":
        raise RpcError(INVALID_PARAMS, f"Unknown prompt: {prompt}")
    if "who" not in arguments:
        raise RpcError(INVALID_PARAMS, "Missing required argument: who")
    style = arguments.get("style", "Hello")
    return prompt_message("A greeting.", f"{style}, {arguments['who']}, from {name}")


def prompt_message(description: str, text: str) -> dict[str, Any]:
    return {"description": description, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def complete(name: str, request: Request) -> dict[str, Any]:
    """Values that begin with what was typed, for prompt argument `who` and template variable `id`."""
    ref = request.params.get("ref") or {}
    argument = request.params.get("argument") or {}
    known: dict[tuple[Any, Any], tuple[str, tuple[str, ...]]] = {
        ("ref/prompt", "greet"): ("who", PEOPLE),
        ("ref/prompt", "fixed"): ("", ()),
        ("ref/prompt", ASKING): ("", ()),
        ("ref/resource", f"test://{name}/item/{{id}}"): ("id", ITEMS),
    }
    target = (ref.get("type"), ref.get("name", ref.get("uri")))
    if target not in known:
        raise RpcError(INVALID_PARAMS, f"Unknown completion reference: {target[1]}")
    variable, values = known[target]
    typed = str(argument.get("value", ""))
    found = [value for value in values if argument.get("name") == variable and value.startswith(typed)]
    return {"completion": {"values": found, "total": len(found), "hasMore": False}}
