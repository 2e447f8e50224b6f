"""Logs of servers: stderr and the hub's events about a server, masked.

`files`     names, sizes, rotation
`writer`    a thread with a bounded queue
`reader`    last and new records
"""
