"""Editors of text: exactly one entry of a file is set or removed, and every other character stays. Pure.

In: the text of a file, and the path of keys to the entry.

Out: the new text; or `CannotEdit` or `NotEditable`, for a text whose meaning would change elsewhere, or that cannot be
understood.

Held together by `entry` (files of clients) and `config_text` (`servers.yaml`), which make the edit, read the new text
once more with a parser that is not the editor's, and compare. `entry` chooses the editor by the suffix of the file:
`json_text`, `toml_text` and `yaml_text` find the place of the entry and return `splices`. `config_text` has its places
from `spans`, the marks of PyYAML's parser, and its values from `writing`, in the style that is around them. `reading`
reads the plain data of a file. Comments, order, indentation, line ends and a byte order mark are never written anew.

A library that writes TOML or YAML back is not used: tomlkit removes the comment of the next table together with a
table, and ruamel.yaml changes indentation, CRLF, the byte order mark and the blanks inside of brackets.

Not here: files (`onboarding.files`), and what an entry means (`config.schema`, `onboarding.clients`).
"""
