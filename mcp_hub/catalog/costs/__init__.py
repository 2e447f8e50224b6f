"""Costs: the tokens of all tools in each list mode.

In: a view, its rules, the kind of client.

Out: tokens by tool, server and list mode.

* `accounts`: caches accounts
* `token_costs`: computes an account

Not here: the estimate (`catalog.tokens`).
"""
