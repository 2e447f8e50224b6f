"""A hub whose stdin and stdout are one socket, as a client's that has lost the background hub."""

import json
import socket
import subprocess
from pathlib import Path

from tests.fork_server import forked_command
from tests.upstreams.launch import argv, servers_yaml


def test_hub_serves_one_socket_in_both_directions(tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text(servers_yaml({"a": argv(name="a")}))
    config = str(tmp_path / "servers.yaml")
    command = [*forked_command(), "serve", "--client", "mcp-hub", "--config", config]
    ours, theirs = socket.socketpair()
    hub = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno())
    theirs.close()
    ours.settimeout(20)
    with ours, ours.makefile("rb") as answers:
        client: dict[str, object] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        call: dict[str, object] = {"name": "a_echo", "arguments": {"text": "both ways"}}
        requests = [("initialize", client), ("ping", {}), ("tools/call", call)]
        for id_, (method, params) in enumerate(requests):
            ours.sendall(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode() + b"\n")
            while "method" in (answer := json.loads(answers.readline())):
                pass
            assert answer["id"] == id_ and "result" in answer
        ours.shutdown(socket.SHUT_WR)
        assert hub.wait(10) == 0
