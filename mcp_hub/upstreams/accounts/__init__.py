"""Accounts of principals at servers that have one for each (`account: own`).

* `rows`: one account as an encrypted row, and rows in files
* `pending`: logins of people until they are accounts
* `desk`: links out, browsers in, codes confirmed
* `waiting`: calls that wait for a login
* `accounts`: all accounts of a hub, its waiting logins, and what ends with an account
"""
