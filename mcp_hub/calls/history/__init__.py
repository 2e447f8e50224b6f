"""Running and ended calls, for people who watch the hub or ask later.

`recent` holds the last 10,000 endings, at most 8 MiB, and summarizes running calls. `waiting` takes each ended call;
`batches` makes a batch of many, masked and cut; `journal` writes batches into the history. `audit` writes a line for
each call, question and change, as `audit_lines` makes them.
"""
