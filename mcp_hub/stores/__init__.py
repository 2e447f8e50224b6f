"""Storage that outlives a process: streams, long results, past calls, server logs.

`base`                    interfaces and limits of stream stores
`documents`               the interface of stores of long results
`long_results`            long results in files and in memory
`memory`                  streams in memory
`sqlite`                  streams in a file
`redis`, `replicated`     streams on a server of replicas
`recovery`                memory behind a failing store
`faults`                  failures
`locks`                   file locks; live hub processes
`keyed_files`             small files: secrets, numbers of executors
`history`                 past calls
`audit`, `audit_file`     the chain of the audit's lines, and where they go
`server_logs`             stderr of servers
"""
