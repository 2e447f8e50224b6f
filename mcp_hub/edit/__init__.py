"""The editor of text: exactly one entry of a file is set or removed, and every other character stays. Pure.

In: the text of a file in YAML, JSON with comments or TOML, the path of keys to the entry, and its value.

Out: the new text; or `CannotEdit`, for a text whose meaning would change elsewhere, or that cannot be understood.

Held together by `entries`, which chooses the editor by the suffix of the file, reads the result once more with a parser
that is not the editor's, and compares: the data must differ in that entry and in nothing else. `json_text`,
`toml_text` and `yaml_text` (with `spans`, the marks of PyYAML's parser) find the place of the entry and return
`splices`: comments, order, indentation, line ends and a byte order mark are never written anew. `writing` writes values
as YAML, in the manner of the hub's own file or of a client's.

A library that writes TOML or YAML back is not used: tomlkit removes the comment of the next table together with a
table, and ruamel.yaml changes indentation, CRLF, the byte order mark and the blanks inside of brackets.

Not here: files (`onboarding.files`), and what an entry means (`config.schema`, `onboarding.clients`).
"""
