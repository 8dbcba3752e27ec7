"""
What the launcher does with a server's arguments before a model loads: refuse, and warm up.

`refusals` says what is not served, by what `finders` find. `warm_up` is what `--warmups dynspec`
runs.
"""
