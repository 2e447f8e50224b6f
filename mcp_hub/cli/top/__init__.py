"""`mcp-hub top`: a hub on the terminal, with what the dashboard shows of servers and calls.

In: the state and the feed of the dashboard (`client.hub_feed`), the events of one call, and keys.

Out: three views on the terminal: overview, calls, and the stream of one call.

Held together by `app`, which is built with Textual, the only part of the hub that imports it (the
extra `top`). `rows` makes the cells of its tables and the lines of its stream; both are plain functions. Texts of
servers are shown without control characters and are never read as markup.

Not here: finding the hub (`cli.commands.browser.top`).
"""
