"""OAuth 2.1: the hub as a resource server.

`tokens`: JWTs
    checked as RFC 8725 advises
    remembered by digest
    metadata of RFC 9728
`keys`: of issuers

Issuer, algorithm and audience come from the configuration.
"""
