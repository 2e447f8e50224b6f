"""Executors: tools that workers register over REST and run themselves.

* `upstream`: offers their tools
* `posts`: decides which posts of a worker are taken
* `registry`: executors, calls and queues
"""
