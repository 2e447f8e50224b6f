"""Discovery: `find_tools`, `read_tool` and `run_tool`, for tools that a model was not listed.

* `meta_tools`: runs `find_tools`, unwraps the others
* `answers`: the answers of `find_tools`; servers in few words
* `capabilities`: what the servers have, for the hub's capabilities
"""
