"""Offers: checked definitions of servers, and the settings for them. Pure.

In: the raw definitions of a list, and settings.

Out: `Definition`s, and `Quarantined` ones.

* `apps`: user interfaces of tools
* `definitions`: checks each definition
* `filters`: which definitions pass, and whose hints count
* `rules`: the settings
"""
