"""Offers: checked definitions of servers, and the settings for them. Pure.

In: the raw definitions of a list, and settings.

Out: `Definition`s, and `Quarantined` ones.

* `definitions`: checks each definition; user interfaces of tools
* `filters`: which definitions pass, and whose hints count
* `rules`: the settings
"""
