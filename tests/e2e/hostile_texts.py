"""Texts of servers and addresses that a page shows, and that must stay text: markup, names that every object has."""

EVIL = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
HOSTILE = [
    {"name": "markup", "description": EVIL, "title": EVIL, "inputSchema": {"type": "object", "properties": {
        EVIL: {"type": "string", "description": EVIL, "enum": [EVIL, "javascript:window.pwned=1"]}}}},
    {"name": "hidden", "description": "a\u200bb\u202ec\x1b[2Jd " + "long " * 3000, "inputSchema": {"type": "object"}},
]  # fmt: skip
EVERYWHERE = ("__proto__", "constructor", "toString", "hasOwnProperty", "valueOf")  # in every object of JavaScript
TAKES = {"type": "object", "required": [*EVERYWHERE], "properties": {name: {"type": "string"} for name in EVERYWHERE}}
OBJECTS = [{"name": name, "description": f"{name}.", "inputSchema": TAKES} for name in EVERYWHERE]
BOXED = f"""
import json, socket, sys, urllib.request
def tried(attempt, *args):
    try:
        attempt(*args)
    except OSError:
        pass
tried(socket.socket(socket.AF_UNIX).connect, {"/tmp/" + EVIL[:60]!r})
tried(urllib.request.urlopen, "http://canary.example:8443/")
tried(urllib.request.urlopen, "http://canary.example:8443/")
for line in sys.stdin:
    message = json.loads(line)
    answer = {{"error": {{"code": -32601, "message": "unknown"}}}}
    if message["method"] == "initialize":
        info = {{"name": "boxed", "version": "1"}}
        answer = {{"result": {{"protocolVersion": "2025-06-18", "capabilities": {{}}, "serverInfo": info}}}}
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **answer}}), flush=True)
"""
BOXED_RULE = {"mode": "prefer", "net": ["api.example.com", "*.cdn.example.com"], "sockets": ["/run/none.sock"]}
"""A server whose sandbox refuses a socket with markup in its path, and a host twice."""
ODD = ("%zz", "%", "%ff%00", "../..", "a/b/c")
HASHES = (
    *(f"#/{name}" for name in (*EVERYWHERE, *ODD)), *(f"#/tools?sort={name}" for name in (*EVERYWHERE, "-", "--")),
    *(f"#/{screen}/{name}" for screen in ("tool", "server", "stream", "event") for name in (*EVERYWHERE, *ODD)),
    "#/%zz/%zz", "#//", "#/tools?q=%zz&sort=-&sort=-", "#/calls?status=constructor&server=%", "#/stream/x?after=NaN",
    "#?", "#/?/?#/#", "#/search?q=%zz", "#" + "/" * 2000, "#/tool/" + "x" * 20000, "#/\ud800",
)  # fmt: skip
