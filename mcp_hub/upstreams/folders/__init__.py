"""Folders of skills as servers: `skills: ./folder` in the configuration.

In: a folder of the user's, in which each folder with a SKILL file is a skill (Agent Skills), at any depth.

Out: an `Upstream` that lists the skills with the digests of their files, lists the files as resources for clients
without the skills extension, and reads files and folders.

Held together by `upstream.FolderUpstream`. `tree` finds regular files and opens them so that nothing outside of the
folder is ever read: dot files, links, pipes and devices are left out. `scan` makes skills of the files; a file that is
as it was is not read again to know its digest.

A folder is looked at when somebody lists or reads, and not all the time.

Not here: filters, URIs that two servers have, and approvals (`catalog`); skills of other servers (`upstreams.lists`).
"""
