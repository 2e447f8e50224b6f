"""Feeds: what happens at servers (MCP Events), one subscription for all who want the same.

Readers with a cursor get all occurrences in order, each once.

Each feed writes durable streams, so that its cursors outlive the hub. `sources`: subscriptions at servers; `incoming`:
those by webhook; `feed`: the owner of one; `reading`: readers, lines and cursors; `table`: all feeds of this hub;
`webhooks`, `deliveries`: clients' webhooks, and messages to them.
"""
