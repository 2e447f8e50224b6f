"""The client that the suite runs for scenarios of authorization: hands them to the test process and waits.

`python -I -S forward.py SOCKET URL`. A hub that lives in the test process (`auth_client`) does what the scenario is
about; dozens of interpreters with a hub each would take minutes.
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
