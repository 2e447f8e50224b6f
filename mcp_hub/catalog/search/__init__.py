"""Search for tools by what they do: names, descriptions and parameters.

In: a profile's tools, and a query.

Out: hits with scores, best first.

* `documents`: words of a tool
* `languages`: queries in other languages, in English
* `likeness`: words that are used alike
* `phrases`: the words of tools for what people say
* `queries`: prepares a query
* `ranker`: ranks tools
* `values`: the kinds of values in a query
* `words`: splits and stems text
"""
