"""The hub as the authorization server of its own principals (OAuth 2.1): a person lets a client in on a page.

`grants`: hashes in a record that hubs share
    tokens and codes of one grant begin alike, so that a used one is known
`clients`: registered ones, which are not stored, and documents
`principals`: people who let clients in, their pages, and callers that come by a grant
`server`: metadata, authorization, tokens

Nothing that a stranger sends is stored, and no address is fetched for one.
"""
