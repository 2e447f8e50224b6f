"""An MCP server over stdio that puts its secret at every place of every text that the hub may cut.

A text is `pad` characters and then the secret again and again: as `pad` runs over its length, each cut of the hub
meets each place within it. `cut_server.py FORM`; `refuse` in place of a form answers `initialize` with errors.
"""

import base64
import json
import os
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

SECRET = 'Zq7"Xv8/Wk9+Vj5\\Ug4é'
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": lambda secret: quote(secret, safe=""),
    "json": lambda secret: json.dumps(secret)[1:-1],
    "base64": lambda secret: base64.b64encode(f"u:{secret}".encode()).decode(),
    "hex": lambda secret: secret.encode().hex(),
}
LONG = 5000


def texts(form: str, secret: str = SECRET) -> list[str]:
    """One for each place of a cut."""
    secret = FORMS[form](secret) + " "
    return ["." * pad + secret * ((LONG - pad) // len(secret)) for pad in range(len(secret))]


def whole(text: str, size: int) -> str:
    """Its beginning, which ends behind a secret."""
    return text[:size].rpartition(" ")[0]


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tools(form: str) -> list[dict[str, Any]]:
    good = {"name": "end", "inputSchema": {"type": "object"}}
    return [good, *({"name": whole(text, 1000), "inputSchema": {"type": text}} for text in texts(form))]


def call(id_: Any, form: str, arguments: dict[str, Any]) -> None:
    text = texts(form)[arguments.get("pad", 0)]
    match arguments.get("kind"):
        case "progress":
            token = arguments.get("token")
            say(method="notifications/progress", params={"progressToken": token, "progress": 1, "message": text})
            say(id=id_, result={"content": []})
        case "log":
            say(method="notifications/message", params={"level": "warning", "logger": text, "data": {"text": text}})
            say(id=id_, result={"content": []})
        case "ask":
            say(id="q", method=f"sampling/{text}", params={})
            say(id=id_, result={"content": []})
        case "broken":
            say(id=id_, error={"code": text, "message": text})
        case "noise":
            print(text, flush=True)
            say(id=id_, result={"content": []})
        case _:
            print(f"Error: {text}", file=sys.stderr, flush=True)
            os._exit(3)


def main(form: str) -> None:
    name, refuses = form.removeprefix("refuse-"), form.startswith("refuse-")
    for text in texts(name):
        os.write(2, text[:100].encode())  # a line that comes in two reads
        os.write(2, f"{text[100:]}\n".encode())
        if not refuses:
            os.write(1, f"{text}\n".encode())
    pad = int(os.environ["CUT_PAD"]) if refuses else 0
    for line in sys.stdin:
        message = json.loads(line)
        id_, method = message.get("id"), message.get("method", "")
        if id_ is None:
            continue
        if method == "initialize" and refuses:
            text = texts(name)[pad % len(texts(name))]
            say(id=id_, error={"code": -32602, "message": text, "data": {"supported": [text], "why": text}})
        elif method == "initialize":
            info = {"name": texts(name)[3], "version": texts(name)[5]}
            offers: dict[str, object] = {"tools": {}, "resources": {}, "logging": {}}
            say(id=id_, result={"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info})
        elif method == "tools/list":
            say(id=id_, result={"tools": tools(name)})
        elif method == "tools/call":
            arguments = message["params"].get("arguments", {})
            token = message["params"].get("_meta", {}).get("progressToken")
            call(id_, name, {**arguments, "token": token})
        elif method == "resources/list":
            say(id=id_, error={"code": -32000, "message": texts(name)[7]})
        else:
            say(id=id_, error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main(sys.argv[1])
