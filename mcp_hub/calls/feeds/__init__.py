"""Feeds: what happens at servers (MCP Events), one subscription for all who want the same.

In: occurrences, by polls and streams of servers. Out: the same, in order and each once, for readers with a cursor.

Each feed writes durable streams, so that its cursors outlive the hub. `sources`: subscriptions at servers; `incoming`:
those by webhook; `feed`: the owner of one; `reading`: readers, and the form of lines and cursors; `table`: all feeds of
this hub; `webhooks`, `deliveries`: clients' subscriptions by webhook, and messages to them.
"""
