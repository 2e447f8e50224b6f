"""Resource URIs: exported, found again, and rewritten where they occur in results.

In: the URIs and URI templates that servers list, those that their results mention, and the URI that a client sends.

Out: an exported URI for each, and for any URI the server that serves it and the URI that this server knows.

Held together by `uris.UriTable`, the map in both directions. A URI stays as it is while one server lists it; on a
clash the others get `hub://<server>/…`. `links` finds the URIs in a result and rewrites them; a URI that no server
lists belongs to the first server that mentioned it. `skills` has the folders of skills, in which all files move
together, and the entries of skills. `readings` lists what a server may read into a URI, and what is nested in it or
encoded, so that a filter cannot be passed by another spelling.

Nothing here does I/O.

Not here: filters themselves (`catalog.offers`), which resources a caller may read (`catalog.views`), and subscriptions
to resources (`sessions`, `upstreams.peer`).
"""
