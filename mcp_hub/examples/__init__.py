"""Examples to run and to copy from.

* `jobs`: a registry of tools that stream, block or wait
* `tools`: a module of plain functions
* `worker`: a program that executes tools over REST

Each module stands alone; nothing imports them.
"""
