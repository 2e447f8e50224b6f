"""JSON Schema as model providers take it; not strict, it is never narrower than the original.

* `canonical`: any draft from 4 on as 2020-12
* `dialects`: subsets of providers
* `emitters`: plain or strict, with the provider's parameter names
* `nodes`: facts about subschemas
* `root`: an object without `allOf`
* `subset`: a schema in a dialect
"""
