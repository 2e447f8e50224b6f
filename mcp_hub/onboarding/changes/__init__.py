"""Changes of clients' files: planned, made, recorded, undone.

A killed process leaves each file old or new.

* `plan`: the steps, for people to read
* `hub_entry`: the hub's entry in a text
* `entry_options`: keeps a person's options
* `acts`: changes files, with a record
* `restore`: undoes a change
* `written`: remembers entries and imported servers
"""
