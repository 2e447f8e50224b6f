"""The lists of a server: read page by page, kept between connections, remembered on disk.

In: a session with a server (`upstreams.peer`) and its notifications that a list has changed.

Out: a `Snapshot`: raw definitions in the server's order. With a cached list the hub can show tools before their server
has started.

Held together by `list_state.ListState`, the lists of one server and the task that reads them again. `list_reader`
reads all kinds at once within bounds; `pacing` decides how soon to read again when a server reports changes all the
time, and when a list is old; `list_cache` keeps one file per server, replaced atomically.

Definitions are not parsed or judged here; they stay the bytes that the server sent.

`list_union` joins the lists of a caller's connection with those of the server, by name.

Not here: checks and names of definitions (`catalog`), and the connection (`upstreams.supervision`).
"""
