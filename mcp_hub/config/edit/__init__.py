"""Edits of a configuration as text: one entry is put in, replaced or removed, and no other byte changes.

In: the text of a `servers.yaml` or `servers.json`, the path of an entry, and its new value as plain data.

Out: the new text, or `NotEditable` with the lines to paste by hand.

Held together by `entries`, which makes the edit, reads the new text again and compares: it must differ from the old one
in that entry and in nothing else. `spans` finds the place of an entry by the marks of PyYAML's parser, and `writing`
writes values in the style that is around them: block or flow style, JSON, the file's indentation and line ends. `risks`
says which changes of a server a page must not make without a person at a terminal.

A library that parses and dumps whole files does not fit: ruamel.yaml changes indentation, CRLF, the byte order mark and
the blanks inside of brackets.

Not here: what an entry means (`config.schema`), and files (`cli.servers_file`).
"""
