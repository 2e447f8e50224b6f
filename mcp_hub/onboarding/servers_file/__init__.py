"""Changes to the hub's own configuration file, checked first, and made as a whole or not at all.

A `ConfigError` leaves the file as it was.

* `servers_file`: finds and edits the file
* `kept_secrets`: puts secrets where `${…}` finds them
* `proposals`: edits of the dashboard
* `risks`: edits that need approval
"""
