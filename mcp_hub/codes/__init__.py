"""Stable codes of failures, their meanings and fixes; `docs/errors.md` is made from them.

Codes do not change; the sentences beside them may.

* `advice`: the form of a row and a table
* `servers`: codes of servers
* `relayed`: codes of configurations, calls, HTTP, model output
* `tables`: all, in groups and by name

Not here: where a code is raised.
"""
