"""The same server as `app_server.mjs` without an SDK, in both eras: python app_server.py NAME.

It does not list the address of its app, which the specification allows.
"""

import json
import sys
from typing import Any

ADDRESS = "ui://board/main"
TYPE = "text/html;profile=mcp-app"
NAME = sys.argv[1]
UI = {"csp": {"connectDomains": [f"https://{NAME}.example"]}, "prefersBorder": True}
ANY = {"type": "object"}
PLAIN = {"name": "plain", "description": "Says who it is.", "inputSchema": ANY}
APPS = [
    {"name": "show", "description": "Shows the board.", "inputSchema": ANY, "_meta": {"ui": {"resourceUri": ADDRESS}}},
    {
        "name": "refresh",
        "description": "Refreshes.",
        "inputSchema": ANY,
        "_meta": {"ui": {"resourceUri": ADDRESS, "visibility": ["app"]}},
    },
]
SAID = {"plain": "is plain", "show": "shows", "refresh": "is fresh"}
CACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def shows_apps(capabilities: Any) -> bool:
    own = capabilities.get("extensions", {}).get("io.modelcontextprotocol/ui", {})
    return TYPE in own.get("mimeTypes", [])


def answer(method: str, params: Any, *, shows: bool) -> Any:
    """The result of one request, with what either era wants of it."""
    offered: dict[str, Any] = {"tools": {}, "resources": {}}
    match method:
        case "initialize":
            about = {"serverInfo": {"name": NAME, "version": "1"}, "capabilities": offered}
            return {"protocolVersion": "2025-11-25", **about}
        case "server/discover":
            return {**CACHED, "supportedVersions": ["2026-07-28"], "capabilities": offered}
        case "tools/list":
            return {**CACHED, "tools": [PLAIN, *(APPS if shows else [])]}
        case "resources/list":
            return {**CACHED, "resources": [{"uri": f"{NAME}:plain", "name": "plain"}]}
        case "resources/templates/list":
            return {**CACHED, "resourceTemplates": []}
        case "resources/read":
            content = {"uri": params["uri"], "mimeType": TYPE, "text": f"<p>{NAME}</p>", "_meta": {"ui": UI}}
            return {**CACHED, "contents": [content]}
        case "tools/call":
            link = [{"type": "resource_link", "uri": ADDRESS, "name": "board"}] if params["name"] == "show" else []
            text = {"type": "text", "text": f"{NAME} {SAID[params['name']]}"}
            return {"resultType": "complete", "content": [text, *link]}
    return None


def main() -> None:
    shows = False
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params", {})
        declared = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities")
        if declared is None and message.get("method") == "initialize":
            declared = params["capabilities"]
        shows = shows if declared is None else shows_apps(declared)
        if "id" in message and "method" in message:
            result = answer(message["method"], params, shows=shows)
            failed = {"error": {"code": -32601, "message": "no such method"}}
            body = failed if result is None else {"result": result}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
