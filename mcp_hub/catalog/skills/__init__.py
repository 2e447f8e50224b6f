"""Skills of all servers in one list: their URIs, and their entries as clients get them.

In: the entries that servers list (`protocol.skills` has their form), and the resources that they list beside them.

Out: `roots.SkillRoots`, the map between a server's URIs of skill files and those that clients know, and entries under
these URIs, marked with their server.

Held together by the root of a skill, its folder. A root stays as it is while no other server has one there; else the
later server's becomes `skill://<server>/<old path>`, with everything in it: links inside of a skill are relative, and a
digest forbids to rewrite them.

Nothing here does I/O, and the hub never fetches the files of a skill ahead of need.

Not here: which skills were changed since they were approved (`catalog.trust`), and the URIs of other resources
(`catalog.resources`).
"""
