"""A client that is not an SDK, and a hub whose upstreams write down what reaches them."""

from dataclasses import dataclass
from pathlib import Path

from tests.interaction.fronts import HANDSHAKE, MODERN, Peer
from tests.upstreams.launch import argv, received, servers_yaml
from tests.upstreams.messages import Message

UPSTREAMS = {"h": HANDSHAKE, "m": MODERN}


@dataclass(frozen=True)
class Wire:
    """A client of the running hub, and where its upstreams write down what reaches them."""

    peer: Peer
    front: str
    root: Path

    def arrived(self, upstream: str, nonce: str) -> Message:
        """The call with this nonce, as the upstream got it."""
        calls = received(self.root / f"{upstream}.journal", "tools/call")
        (found,) = [call for call in calls if call["params"].get("arguments", {}).get("nonce") == nonce]
        return found


def config(root: Path) -> str:
    servers = {
        name: argv(name=name, era=era, journal=root / f"{name}.journal", instructions=f"I am {name}. More.")
        for name, era in UPSTREAMS.items()
    }
    return servers_yaml(servers)
