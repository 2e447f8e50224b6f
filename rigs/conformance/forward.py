"""The client that the suite runs for authorization: `forward.py SOCKET URL` hands its scenarios to the test process.

Dozens of interpreters with a hub each would take minutes.
"""

import json
import os
import socket
import sys


def main(path: str, url: str) -> int:
    names = ("SCENARIO", "PROTOCOL_VERSION", "CONTEXT")
    told = {name.lower(): os.environ.get(f"MCP_CONFORMANCE_{name}", "") for name in names}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps({"url": url, **told}).encode() + b"\n")
        with connection.makefile("rb") as answer:
            said = json.loads(answer.readline())
    sys.stderr.write(said["noise"])
    return int(said["code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
