"""Requests of commands to a background hub by its own socket, which are not part of REST."""

from mcp_hub.attach.join import NotJoined, request
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, fail


def asked(folder: str, wants: str) -> dict[str, str]:
    """The answer of the hub in that folder. Exits with 3 if it does not give one."""
    try:
        return request(folder, wants)
    except NotJoined as problem:
        fail("hub_not_answering", f"The background hub in {folder} does not answer: {problem}.", EXIT_UNAVAILABLE)
