"""The hub as the authorization server of its own principals (OAuth 2.1): a person lets a client in on a page.

`grants`: what was granted, as hashes in a record that hubs share
    tokens and codes of one grant begin alike, so that a used one is known
`clients`: registered ones, which are not stored, and documents
`server`: metadata, authorization, tokens
`pages`: login, consent, refusals
`people`: those of an OpenID provider

Nothing that a stranger sends is stored, and no address is fetched for one.
"""
