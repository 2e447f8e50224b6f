"""Runs strangers' scripts in worker processes, step by step. Knows no house.

In: a script, names and stubs of its functions, limits. Out: steps, each with new calls and the whole state.

- `engine`: sessions and their workers
- `steps`: records of a run, its errors
- `worker`: one script in one process, synchronous; alone imports the engine's package
- `source`: the text of a script
- `diagnostics`: mistakes found by the check of types; exceptions that are limits
- `values`: results of tools as values, a script's output as a result
- `signatures`: tools as Python functions, for models and type checkers
- `tool`: `run_code`, and the names of other tools

The engine's client for asyncio is not used: its threads call into Python even after a loop has ended, and up to 3.13
that aborts an ending interpreter. The synchronous client calls Python in our threads only, and a session's end kills
its worker and waits for its thread.
"""
