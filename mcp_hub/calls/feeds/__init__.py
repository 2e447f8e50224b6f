"""Feeds: what happens at servers (MCP Events), one subscription for all who want the same.

In: occurrences, by polls and streams of servers. Out: the same, in order and each once, for readers with a cursor.

Each feed writes durable streams, so that its cursors outlive the hub. `lines`: their form; `sources`: subscriptions at
servers; `feed`: the owner of one; `reading`: readers; `table`: all feeds of this hub.
"""
