"""Selections by JSON paths and patterns, within bounds.

In: JSON or a text, and a path or pattern of a stranger.

Out: values, or an error that helps to write it right.

- `paths`: checks a path
- `engine`: selects values, describes a value
- `patterns`: regular expressions
"""
