"""Long results: truncated for the model, kept whole, read back in pieces.

In: an encoded result, and its client's token limit.

Out: the result, its head and tail, or the fields that a path selects.

- `long_results`: truncates and stores; the tool for the rest
- `truncate`, `json_records`: find where to cut
- `projection`: selects fields
- `paging`: pages and searches within bounds
"""
