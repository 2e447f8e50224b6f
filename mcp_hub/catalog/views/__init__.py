"""Views: all that one kind of caller can list, read and call. Pure.

* `entries`: definitions under exported names
* `exposure`: tools that a client is listed
* `listed`: readable resources
* `names`: exported names
* `unmatched`: settings that match nothing
* `view`: builds the view
"""
