"""Scripts as tools: each file NAME.py of a folder with an `async def main(…)`.

* `source`: reads a folder's scripts, and makes tools of them
* `upstream`: their lists and runs
"""
