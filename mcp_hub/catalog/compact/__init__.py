"""Compaction: a JSON Schema in fewer tokens, with the same verdict on every instance.

In: one encoded tool definition or schema, of any draft from 06 to 2020-12.

Out: the shorter schema, or the very same bytes where equality cannot be proved. Nothing here raises for bad input.

Held together by `schema`, the entry point, which removes keywords that assert nothing. `references` knows where the
subschemas of each draft are, which `$ref` can be proved and which definitions are unused.

Everything here is pure. The size of the result is bounded by the size of the input.

Not here: validation of arguments, which is the server's task, and the estimate of tokens (`catalog.tokens`).
"""
