"""Commands that edit `servers.yaml`, leaving every other byte; a running hub reloads it.

* `add`: adds a server, searches a registry
* `edit`: removes, enables or disables servers; opens an editor; the common end
* `sandbox`: shows, switches or learns a sandbox
"""
