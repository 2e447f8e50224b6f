"""Changes of clients' files: planned, made, recorded, undone.

A killed process leaves each file old or new.

* `plan`: the steps, for people to read
* `entry_options`: keeps a person's options
* `acts`: changes files, with a record
* `restore`: undoes a change
* `written`: the hub's entry in a text; remembers entries and imported servers
"""
