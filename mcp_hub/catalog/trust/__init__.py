"""Trust on first use: changes since texts were approved, and suspicious definitions.

* `approvals`: compares lists with records
* `scan`: searches for flags, shows changes
"""
