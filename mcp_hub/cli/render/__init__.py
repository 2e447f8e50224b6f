"""Output for people and programs. Imports rich inside functions.

* `output`: stdout and its failures
* `tables`: tables, lines and JSON
* `servers`: servers of a hub
* `renderers`: a running call
* `results`: its result
* `notices`: warnings
"""
