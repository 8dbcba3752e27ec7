"""
Replaying policies: on the synthetic servers of a suite, or on load that was recorded.

`suite_run` runs a suite of scenarios (`suites`), `checks` holds the result against criteria,
`recorded` replays a trace, and `pictures` draws.
"""
