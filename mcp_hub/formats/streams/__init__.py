"""Streamed output of models: each provider's chunks as the normalised events of `formats.events`.

In: the chunks of a stream as decoded JSON, or as objects of the provider's SDK, in their order.

Out: events, chunk by chunk, and at the end the calls, with what must go back to the provider untouched.

Held together by `reader.OutputReader`: it keeps open calls, the limits of their arguments, and the one ending. Each
provider has a subclass that reads its chunks; `choice.output_reader` makes the one for a format.

A reader never raises for what a provider sends: a broken call is an error event, and a fault of its call.

The readers: `anthropic`, `gemini` (with `partial_args`), `openai_chat`, `openai_responses`.

Not here: HTTP and event streams as bytes (`protocol.sse` reads those), and models without tool calling
(`formats.prompted`).
"""
