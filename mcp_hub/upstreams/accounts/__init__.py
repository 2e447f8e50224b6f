"""Accounts of principals at servers that have one for each (`account: own`).

* `rows`: encrypted accounts, and rows in files
* `pending`: logins until they are accounts
* `desk`: links out, browsers in, codes confirmed
* `waiting`: calls that wait for a login
* `accounts`: all accounts of a hub
"""
