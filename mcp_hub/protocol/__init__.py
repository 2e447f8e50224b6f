"""MCP without I/O: pure functions and tables. Payloads stay encoded.

`eras`                          protocol versions
`meta`, `headers`               `_meta` and extensions; HTTP headers
`capabilities`                  of peers; kinds of lists
`notifications`                 progress too
`sse`                           event streams, and places in them
`skills`                        `skills/list`
`jsonrpc`                       bytes to envelopes and back
`shape`                         values in the form of an era
`definitions`                   checks and repair
`rest`                          JSON of the REST API
"""
