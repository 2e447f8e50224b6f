"""Streamed output of models: each provider's chunks as the events of `formats.events`.

In: decoded chunks, or SDK objects.

Out: events, and the calls; nothing raises.

* `reader`: open calls, limits, the one ending
* `anthropic`, `gemini`, `openai_chat`, `openai_responses`
* `choice`: the reader for a format
"""
