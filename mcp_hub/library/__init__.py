"""The public library: a hub inside another program.

* `hub`: the public class
* `stream`: a call as events, answers to a server's questions; models of raw JSON
* `sdk_client`: a client of the official SDK
* `inner`: the hub behind `Hub`

Signals, logging and event loop policy of the process stay as they are.
"""
