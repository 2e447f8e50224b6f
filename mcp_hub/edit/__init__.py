"""The editor of text files: sets or removes one entry and keeps every other character. Pure.

* `entries`: the edits; the result is parsed again and compared
* `json_text`: JSON with comments
* `toml_text`: TOML
* `yaml_text`: YAML, by the places of its nodes
* `writing`: replacements in a text, values as YAML

Raises `CannotEdit` for what it cannot edit safely.
"""
