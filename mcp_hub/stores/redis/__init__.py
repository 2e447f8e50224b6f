"""Streams on a Redis or Valkey server, shared by replicas behind a balancer.

`store`                    the store and its parts
`log`, `pages`             writing and reading events
`records`                  encoding and checks
`scripts`                  Lua scripts
`keys`                     names of keys
`index`                    lists of streams, idempotency keys
`link`, `connection`       a connection's queue; clients
`leases`                   live replicas
`mail`         messages between replicas
`sessions`, `documents`    handshake sessions; long results
`quarantine`               bad records
"""
