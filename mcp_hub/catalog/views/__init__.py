"""Views: all that one kind of caller can list, read and call, under the names that it knows.

In: the definitions of all servers (`catalog.offers`), the rules of a profile, and what is held back.

Out: a `CatalogView`, immutable and the same for the same input in any order.

Held together by `view`, which builds it out of `entries`, one for each definition. `names` assigns exported names and
remembers those of tools that were removed, `listed` finds which resources callers can read, `exposure` selects what a
client is listed, `unmatched` finds settings that match nothing.

Everything here is pure. Not here: the views of now (`catalog.catalog`), and exported URIs (`catalog.resources`).
"""
