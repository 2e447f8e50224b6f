"""MCP without I/O: pure functions and tables. Payloads stay encoded.

`eras`                          protocol versions
`meta`, `headers`               `_meta` and extensions; HTTP headers
`capabilities`                  declarations of peers, and the kinds of lists
`notifications`                 messages beside results, progress too
`sse`                           event streams, and places in them
`skills`                        entries of `skills/list`
`jsonrpc`                       bytes to envelopes and back
`shape`                         values in the form of an era
`definitions`                   checks and repair
`rest`                          JSON of the REST API
"""
