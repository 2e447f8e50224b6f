"""The configuration: from text, files and environment to `Settings`, or a list of all mistakes.

Only `app` and `cli` read `Settings`.

* `load`: from one file to `Settings`
* `schema`: the sections, as pydantic models
* `findings`: mistakes and warnings
* `plan`: from old settings to new ones
* `trust`: who else can write a file
"""
