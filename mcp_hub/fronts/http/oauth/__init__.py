"""OAuth 2.1 for incoming requests: the hub as a resource server that checks access tokens.

In: a bearer token that is not one of the configured ones, and the issuers, audiences and scopes of the configuration.

Out: the principal and profile that the token stands for, or the reason why it was refused, with the challenge that
leads a client to the authorization server. Protected resource metadata (RFC 9728).

Held together by `tokens.TokenVerifier`, which checks JWTs as RFC 8725 advises and remembers a valid one by its digest.
`keys` reads the key sets of issuers from a URL or file, refreshes them, and serves the last good set for a day.

Issuer, algorithm and audience come from the configuration, never from the token.

Not here: tokens that are written in the configuration (`fronts.http.auth`), and logins of the hub to remote servers
(`upstreams.auth`).
"""
