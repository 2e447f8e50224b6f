"""Fault tolerance: streams continue in memory while their store fails.

`failsafe`           the store that the hub uses
`shared`             the store that replicas use
`memory_fallback`    streams in memory
`recovery`           the file: retries and replacement
"""
