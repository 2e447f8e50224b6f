"""Questions of a tool, for the person at the terminal.

In: an `InputRequired`.

Out: the answer, sent to the hub, and a note.

* `answering`: asks, or refuses
* `form`: the fields of a form
* `dialog`: the conversation
* `terminal`: reads lines without blocking
"""
