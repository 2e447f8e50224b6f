"""A stand-alone client of a running hub: its tools, and calls of them with what happens on the way.

`messages` writes requests and reads answers without I/O; `http` does the rest. Stateless, as the modern era is: each
request is one POST, and closing its answer cancels it.
"""

from mcp_hub.client.http import HubCall, HubClient

__all__ = ["HubCall", "HubClient"]
