"""Questions of a tool, put to the person at the terminal while the call runs.

In: a question of a call (`InputRequired`), and a client of the hub that runs the call.

Out: the answer, which is sent to the hub, and a note about it.

Held together by `answering`: a form or a URL (elicitation) is asked for as long as it is open; sampling and roots are
refused with the reason, and so is everything where nobody can be asked. `form` reads the fields of a form and what is
typed into them, without I/O. `dialog` is the conversation about one question, over a `terminal` that reads a line
without blocking the call.

All text of a server is shown without control characters, and on marked lines, so that none looks like the command's.

Not here: showing the events of the call (`cli.render`).
"""
