"""
Replaying policies: on the synthetic servers of a suite, or on load that was recorded.

`suite_run` runs a suite of scenarios (`suites`), `checks` holds the result against criteria,
`recorded` replays a trace, and `pictures` draws. `worlds` are harder: `hard_run` runs a policy
through them, `hard_checks` judges it, and `hard_ablations` takes its parts (`ablations`) out.
"""
