"""Offers: checked definitions of servers, and the settings for them. Pure.

* `definitions`: checks each definition; user interfaces of tools
* `filters`: which definitions pass, and whose hints count
* `rules`: the settings
"""
