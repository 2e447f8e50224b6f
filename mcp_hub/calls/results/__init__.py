"""Long results: truncated for the model, kept whole, read back in pieces.

- `long_results`: truncates and stores; the tool for the rest
- `truncate`, `json_records`: find where to cut
- `projection`: selects fields
- `paging`: pages and searches within bounds
"""
