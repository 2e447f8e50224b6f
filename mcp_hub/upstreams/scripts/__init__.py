"""Scripts as tools: each file NAME.py of a folder with an `async def main(…)`.

* `source`: reads the scripts of a folder, and makes tools of them
* `upstream`: their lists, and their runs
"""
