"""Definitions and results as clients read them, and lossless repair.

`models`            schemas of the strictest clients
`repair`            definitions
`messages`          results, questions, log messages
`output_schemas`    output schemas that clients cannot compile
"""
