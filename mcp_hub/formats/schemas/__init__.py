"""JSON Schema as model providers take it: one normaliser, and one emitter for each provider's subset.

In: the input schema of a tool, in any dialect since draft 4.

Out: the schema that the provider takes, and what it lost; or the reason why it cannot be strict.

Held together by `canonical`: a schema of 2020-12 whose references all lead into `$defs`. `subset` makes a canonical
schema one of a `dialects.Dialect`, with the help of `merging` (allOf). `root` makes
it an object without alternatives at the top, `strict` decides whether it can be enforced, `names` renames parameters.

A schema that is not strict is never narrower than the original: arguments that the tool takes stay valid.

`emitters` has the subset of each provider, `renames` leads names of parameters back, `nodes` finds subschemas.

Not here: the shape of a tool around its schema (`formats.tools`).
"""
