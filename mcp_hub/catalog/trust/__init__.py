"""Trust on first use: changes since texts were approved, and suspicious definitions.

In: listed definitions, earlier records, approvals of a person.

Out: findings (new, changed, held back) and flags.

* `approvals`: compares lists with records
* `scan`: searches for flags, shows changes
"""
