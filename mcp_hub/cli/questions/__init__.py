"""Questions of a tool, for the person at the terminal.

In: an `InputRequired`.

Out: the answer, sent to the hub, and a note.

* `answering`: asks at the terminal, or refuses
* `form`: the fields of a form
"""
