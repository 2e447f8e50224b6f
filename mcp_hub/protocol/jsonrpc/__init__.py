"""JSON-RPC: bytes to envelopes and back. Functions do not raise for bad input, unless documented.

`framing`       lines of a pipe
`envelope`      one message
`batches`       several messages on a line
`salvage`       ids of unreadable messages
`repair`        stand-ins for unreadable answers
`depth`         nesting without recursion
`rpc_errors`    codes and relay of errors
"""
