"""Resource URIs: exported, resolved, and rewritten in results. No I/O.

* `readings`: spellings of a URI, for filters
* `skills`: folders, files and entries of skills
* `uris`: the map in both directions, and URIs in results
"""
