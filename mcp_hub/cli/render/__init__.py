"""Output for people and programs. Imports rich inside functions.

* `output`: stdout and its failures
* `tables`: tables, lines and JSON
* `servers`: servers of a hub
* `renderers`: a running call
* `results`: its result
* `diagnosis`: a code and advice for a server
* `notices`: warnings
* `learning`: a proposal for a sandbox
"""
