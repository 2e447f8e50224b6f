"""Stable codes of failures, their meanings and fixes; `docs/errors.md` is made from them.

Codes do not change; the sentences beside them may.

* `relayed`: the form of a table; codes of configurations, calls, HTTP, model output
* `tables`: codes of servers; all, in groups and by name

Not here: where a code is raised.
"""
