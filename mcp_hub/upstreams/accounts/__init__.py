"""Accounts of principals at servers that have one for each (`account: own`).

* `rows`: one account as an encrypted row, and rows in files
* `accounts`: all accounts of a hub, its waiting logins, and what ends with an account
"""
