"""JSON-RPC: bytes to envelopes and back. Functions do not raise for bad input, unless documented.

`framing`       lines of a pipe
`envelope`      one message
`unparsed`      unreadable messages; nesting
`repair`        several messages on a line; unreadable answers
`rpc_errors`    codes and relay of errors
"""
