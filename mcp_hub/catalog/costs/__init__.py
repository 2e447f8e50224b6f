"""Costs: the account of the tokens of all tools, in every way to list them.

In: the view of a profile, the rules for it, and the kind of client that asks.

Out: tokens of each tool, each server and each list mode, as `GET /v1/tokens` and `mcp-hub tokens` show them.

Held together by: `token_costs`, the account as a pure function of a view; `accounts`, which keeps accounts until the
lists change.

Not here: the estimate of one text (`catalog.tokens`), which list mode a client gets (`catalog.views`), and how results
are truncated (`calls.results`).
"""
