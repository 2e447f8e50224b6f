"""Documents: the full texts of long results, kept so that their caller can read on.

In: a text, the principal whose call it came from, and how long to keep it.

Out: a short id that is made from the content, and later any range of the bytes, exact.

Held together by `base.Documents`, the interface, with its limits in time, bytes and number. `files` keeps one file per
document in a folder that several hubs share; a file appears whole or not at all. `memory` keeps documents for one
process. `stores.open` makes the one that goes with the configured store of streams.

A document of another principal is as unknown as one that has expired.

Not here: truncation and searching (`calls.results`), and events of streams (`stores.base`).
"""
