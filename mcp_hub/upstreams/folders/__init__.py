"""Folders of skills as servers: each folder with a SKILL file is an Agent Skill.

* `upstream`: lists and reads the skills
* `tree`: opens regular files, never outside the folder
"""
