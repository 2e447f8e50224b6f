"""Connections to remote servers, over Streamable HTTP or HTTP+SSE.

* `connection`: settles transport and era
* `session_check`: finds lost sessions and begins others

A server receives the headers of its own configuration, never credentials of the hub's clients.
"""
