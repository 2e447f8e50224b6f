"""The stable code of every failure that a user can meet: what it means and how to fix it.

Programs test for codes; `mcp-hub doctor` looks its advice up here, and `docs/errors.md` is made from these tables. The
sentence beside a code is for people and may change; a code does not. `tests/unit/test_codes.py` holds the tables equal
to the codes that the package uses.

Held together by `tables.GROUPS`, the tables in the order of the page: `servers` has the codes of servers, `relayed`
those of configurations, calls, HTTP and the output of models, `commands` those of commands. `tables.CODES` has all.

`advice` is the form of a row and of a table.

Not here: where a code is raised, and the sentence beside it.
"""
