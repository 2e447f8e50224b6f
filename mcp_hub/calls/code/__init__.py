"""Runs of scripts: durable calls of the hub's own that make other calls.

- `state`: the sealed state, for another hub to continue a run
- `consent`: what a script may call now, and questions to its caller
- `inner`: one inner call; `sending`: those of one run
- `run`: one run, step by step; `runs`: all runs of a hub

Nothing leaves the engine between two commits. A call is sent only after the state that names it is safe. No writing
call is sent twice: if its outcome is not known, the script gets an exception.
"""
