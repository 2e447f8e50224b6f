"""Long results: truncated for the model, kept whole, and read back piece by piece.

In: the encoded result of a tool or a resource, and the limit in tokens of the client that asked for it.

Out: the result itself if it fits, or one with the head and the tail of its texts and the id under which the rest can
be read. `read_result`, a tool of the hub's own, returns pages, matching lines or the values of a JSON path.

Held together by `retain`, which truncates and stores, and `read_result`, which reads. The decisions are pure functions
over bytes: `truncate` finds where to cut, `json_records` finds the borders of records, `paging`, `patterns` and
`json_paths` select. Every search is bounded: patterns are RE2, and a JSON path may look at a fixed number of values.

Not here: the place where texts are kept (`stores.documents`), and the estimate of tokens (`catalog.tokens`), which is
passed in.
"""
