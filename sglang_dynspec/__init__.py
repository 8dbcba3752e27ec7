"""
Dynamic speculative decoding for SGLang.

Before every decode round a policy decides whether to speculate and how deep. This package is the
part that needs no engine: policies, the guard around them, configuration, traces and reports. The
part that hooks into SGLang is found through entry points.
"""

from sglang_dynspec._version import __version__
from sglang_dynspec.config import Config
from sglang_dynspec.config.enabling import disable, enable
from sglang_dynspec.errors import ConfigError, DynspecError, PolicyError, SeamError, TraceError
from sglang_dynspec.marker import hookimpl
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits, Policy

__all__ = [
    "Config",
    "ConfigError",
    "DynspecError",
    "Limits",
    "Observation",
    "Outcome",
    "Plan",
    "Policy",
    "PolicyError",
    "SeamError",
    "TraceError",
    "__version__",
    "disable",
    "enable",
    "hookimpl",
]
