"""Long results, kept for their caller to read in parts.

`base`      the interface, its limits, and ids
`files`     one file for each document, shared by hubs
`memory`    documents of one process
"""
