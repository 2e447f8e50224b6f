"""JSON Schema as model providers take it; not strict, it is never narrower than the original.

* `canonical`: any draft from 4 on as 2020-12
* `dialects`: subsets of providers
* `emitters`: a plain or strict schema, with parameter names that the provider takes
* `nodes`: facts about subschemas
* `root`: an object at the top, without `allOf`
* `subset`: a schema in a dialect
"""
