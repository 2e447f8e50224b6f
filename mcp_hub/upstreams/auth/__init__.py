"""OAuth 2.1 logins to remote servers, with the hub as the client.

* `access`: one server's login in use
* `grants`: records of a login, and its file
* `login`: logs in and out, also in the web in two requests
* `redirect`: receives the browser
* `flows`: logs in by the SDK's client
* `token_exchange`: tokens in exchange for the callers' own
* `token_requests`: renews tokens, checks the SDK's requests, reads untrusted responses
* `addresses`: requests to checked addresses only
"""
