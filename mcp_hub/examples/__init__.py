"""Examples to run and to copy from.

* `jobs`: a registry of tools that stream, block or wait
* `streaming_server`: an MCP server that streams
* `tools`: a module of plain functions
* `worker`: a program that executes tools over REST

Each module stands alone; nothing imports them.
"""
