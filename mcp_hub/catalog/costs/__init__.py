"""Tokens: an estimate for a text, and the account of all tools in every way to list them.

In: the view of a profile, the rules for it, and the kind of client that asks.

Out: tokens of each tool, each server and each list mode, as `GET /v1/tokens` and `mcp-hub tokens` show them.

Held together by: `tokens`, an estimate of the o200k encoding without its vocabulary; `token_costs`, the account as a
pure function of a view; `accounts`, which keeps accounts until the lists change.

Not here: which list mode a client gets (`catalog.exposure`), and how results are truncated (`calls.results`).
"""
