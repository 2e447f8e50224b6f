"""Fault tolerance: streams continue in memory while their store fails.

`failsafe`           the store that the hub uses
`shared`             the store that replicas use
`writes`             its writes, which wait for the server
`memory_fallback`    streams in memory
`recovery`           the file: retries and replacement
"""
