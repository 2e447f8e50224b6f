"""The logs of servers: what each wrote to stderr and what the hub says about it, in files that outlive the hub.

In: lines of servers as bytes, and events of the hub's own log that name a server.

Out: `logs/<configuration>/<server>.jsonl` in the state folder, one JSON object (`LogRecord`) per line, masked, for
nobody else's eyes; and the records again, the last ones or as they are written.

Held together by `files`, which knows names, sizes and rotation: at most 5 files of 1 MiB for a server, and 200 servers
of all configurations; the log that was written longest ago goes first. Several hubs of one configuration write to the
same files, each record with the number of its process. `writer` is a thread with a bounded queue, so that no disk holds
up the event loop. `reader` is for `mcp-hub logs`.

Not here: the hub's own log on stderr (`mcp_hub.logs`), and the last lines of a server that are shown with its failure,
which the connection keeps in memory.
"""
