"""Gates of a call: what is asked between its routing and its sending.

In: a routed call, and the handler that sends it.

Out: the handler's result, a kept one, or a refusal.

- `steps`: the gates in their order; each is there where it is configured
- `conditions`: globs on arguments and identity; `asking`: a person's yes
"""
