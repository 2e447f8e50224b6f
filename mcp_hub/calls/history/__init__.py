"""The calls that run and those that have ended, for people who watch the hub or ask later.

`recent` holds the last 10,000 endings, at most 8 MiB, and summarizes the calls that run. `waiting` takes each call that
ends; `batches` makes a batch of many, with texts masked and cut; `journal` writes batches into the history.
"""
