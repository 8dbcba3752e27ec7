"""
A pytest harness for policies, without an engine.

Opt in with ``pytest_plugins = ["sglang_dynspec.testing"]``. It offers

- `policy_run`, a fixture: run a policy behind the real guard over synthetic rounds;
- `PolicyContract`, a class to derive from: what every policy has to satisfy;
- `dynspec_engine`, a fixture: SGLang's real engine on the CPU, with the extra ``[testing]``;
- `assert_lossless`: compare the outputs of two engines.

Nothing here is automatic: importing it changes no environment, and no fixture runs unasked.

PYTEST_DONT_REWRITE: there is no assertion in this file. Without this word pytest would warn where a
test module imports from here before it names this plugin.
"""

import pytest

# Has to come before the import of what it names.
pytest.register_assert_rewrite("sglang_dynspec.testing.contract")

from sglang_dynspec.testing.contract import PolicyContract  # noqa: E402
from sglang_dynspec.testing.engine import EngineFactory, dynspec_engine  # noqa: E402
from sglang_dynspec.testing.lossless import assert_lossless  # noqa: E402
from sglang_dynspec.testing.runs import PolicyRun, RunPolicy, policy_run, run_policy  # noqa: E402

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
