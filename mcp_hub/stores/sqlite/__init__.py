"""Streams in one SQLite file (WAL) shared by hubs.

`store`                    the store and its parts
`worker`                   a thread with a connection
`transactions`             work of the threads
`reads`, `writes`          statements
`schema`                   tables and connections
`read_only`                files that cannot be written
`quarantine`, `salvage`    damaged files
"""
