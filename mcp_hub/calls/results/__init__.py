"""Long results: truncated for the model, kept whole, read back in pieces.

In: an encoded result, and its client's token limit.

Out: the result, or its head and tail.

- `retain`: truncates and stores
- `truncate`, `json_records`: find where to cut
- `read_result`: the tool for the rest
- `paging`, `patterns`, `json_paths`: select within bounds
"""
