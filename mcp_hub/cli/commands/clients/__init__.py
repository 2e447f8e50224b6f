"""The commands about other clients. Exit code 1 if a client was not changed.

* `steps`: finds files, shows, does and undoes changes
* `install`, `uninstall`, `leave`: put the hub into clients, and take it out
* `export`: servers for a client
* `import_servers`: servers from clients, a first configuration
* `import_dialog`: shows an import and asks for values
"""
