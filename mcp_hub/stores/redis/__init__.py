"""Streams on a Redis or Valkey server, shared by replicas behind a balancer.

`store`                    the store and its parts
`log`                      writing and reading events
`records`                  encoding and checks; bad records
`scripts`                  Lua scripts
`keys`                     names of keys; Lua scripts of limits and locks
`index`                    lists of streams, idempotency keys
`link`                     clients; a connection's queue
`leases`                   live replicas
`mail`                     messages between replicas
`sessions`                 handshake sessions
"""
