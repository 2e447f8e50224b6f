"""Streams in one SQLite file (WAL) shared by hubs.

`store`              the store and its parts
`worker`             a thread with a connection
`transactions`       work of the threads, also on files that cannot be written
`reads`, `writes`    statements
`schema`             tables and connections
`quarantine`         damaged files
"""
