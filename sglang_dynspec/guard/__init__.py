"""
The guard: bounds what any policy can do to a server.

`Guard` asks the policy and bounds its answer. Each bound is a module of its own: `policy_calls`
(faults and slowness), `switch_rate` (how often depth changes), `probe_budget` (what probes cost),
`quarantine` (depths measured below the plain rate) and `watchdog` (acceptance that has collapsed).
`rates` holds the measured tokens/s that the middle two compare.
"""

from sglang_dynspec.guard.guard import (
    BUDGET_EXHAUSTED,
    POLICY_FAILED,
    PROBE_ROUNDS,
    WATCHDOG_RETRY,
    Guard,
)

__all__ = ["BUDGET_EXHAUSTED", "POLICY_FAILED", "PROBE_ROUNDS", "WATCHDOG_RETRY", "Guard"]
