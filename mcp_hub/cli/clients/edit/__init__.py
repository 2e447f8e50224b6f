"""Editors of text: exactly one entry of a file is set or removed, and every other character stays.

In: the text of a file, and the path of keys to the entry.

Out: the new text; or `CannotEdit`, for a text whose meaning would change elsewhere, or that cannot be understood.

Held together by `entry`, which chooses the editor by the suffix of the file, reads the result once more with a parser
that is not the editor's, and compares. `json_text`, `toml_text` and `yaml_text` find the place of the entry and return
`splices`: comments, order, indentation, line ends and a byte order mark are never written anew.

A library that writes TOML or YAML back is not used: tomlkit removes the comment of the next table together with a
table, and none of them keeps YAML as it was.

Not here: files (`cli.clients.files`).
"""
