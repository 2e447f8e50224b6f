"""Long results: truncated for the model, kept whole, read back in pieces.

In: an encoded result, and its client's token limit.

Out: the result, or its head and tail.

- `long_results`: truncates and stores; the tool for the rest
- `truncate`, `json_records`: find where to cut
- `paging`, `json_paths`: select within bounds
"""
