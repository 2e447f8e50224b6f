"""Gates of a call: what is asked between its routing and its sending.

- `steps`: the gates in their order; each is there where it is configured
- `conditions`: globs on arguments and identity; `asking`: a person's yes
- `cache`: kept results; `rate`, `turns`: limits, and whose turn it is
"""
