"""
One decode round, top to bottom: observe, decide, plan, (run), outcome, learn.

`rounds` is the way through. Beside it stand what it tells of a round (`observers`, `decision`) and
the rounds before the server serves (`warm_up`).
"""
