"""Commands that edit `servers.yaml`; a running hub reloads it.

In: a command line, a URL, a domain, a `server.json`, or names.

Out: the file; every other byte stays.

* `add`: adds a server, searches a registry
* `edit`: removes, enables or disables servers; opens an editor; the common end
* `sandbox`: shows, switches or learns a sandbox
"""
