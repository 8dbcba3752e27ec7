"""
A pytest harness for policies, without an engine.

Opt in with ``pytest_plugins = ["sglang_dynspec.testing"]``. It offers

- `policy_run`, a fixture: run a policy behind the real guard over synthetic rounds;
- `PolicyContract`, a class to derive from: what every policy has to satisfy;
- `dynspec_engine`, a fixture: SGLang's real engine on the CPU, with the extra ``[testing]``;
- `assert_lossless`: compare the outputs of two engines.

Nothing here is automatic: importing it changes no environment, and no fixture runs unasked.
"""

from sglang_dynspec.testing.contract import PolicyContract
from sglang_dynspec.testing.engine import EngineFactory, dynspec_engine
from sglang_dynspec.testing.lossless import assert_lossless
from sglang_dynspec.testing.runs import PolicyRun, RunPolicy, policy_run, run_policy

__all__ = [
    "EngineFactory",
    "PolicyContract",
    "PolicyRun",
    "RunPolicy",
    "assert_lossless",
    "dynspec_engine",
    "policy_run",
    "run_policy",
]
