"""The commands about other clients. Exit code 1 if a client was not changed.

* `steps`: finds files, shows, does and undoes changes
* `install`: puts the hub into clients
* `uninstall`: takes it out
* `leave`: takes all of it out
* `export`: servers for a client
* `import_servers`: servers from clients, a first configuration
* `import_dialog`: shows an import and asks for values
"""
