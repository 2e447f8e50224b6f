"""Storage that outlives a process: streams, long results, past calls, server logs.

`base`                    interfaces of stream stores
`open`                    makes the configured stores
`memory`                  streams in memory
`sqlite`                  streams in a file
`redis`, `replicated`     streams on a server of replicas
`recovery`                memory behind a failing store
`limits`, `faults`        sizes; failures
`instances`, `locks`      live hub processes; file locks
`keyed_files`             small files
`keys`, `epochs`          secrets; numbers of executors
`documents`               long results
`history`                 past calls
`server_logs`             stderr of servers
"""
