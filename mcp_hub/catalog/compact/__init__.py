"""Compaction: a JSON Schema in fewer tokens, with the same verdict on every instance.

In: an encoded tool definition or schema, draft-06 to 2020-12.

Out: a shorter one, or the same bytes.

* `schema`: the entry points

Pure; never raises.
"""
