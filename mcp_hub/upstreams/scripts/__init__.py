"""Scripts as tools: each file NAME.py of a folder with an `async def main(…)`.

* `source`: the tool of a script's text
* `folder`: reads the scripts of a folder
* `upstream`: their lists, and their runs
"""
