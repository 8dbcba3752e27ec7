"""`Stock`: SGLang's own adaptive policy, to compare with."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec import ConfigError, Plan, Policy
from sglang_dynspec.simulator.server import GRAPH_SIZES

if TYPE_CHECKING:
    from sglang_dynspec import Limits, Observation, Outcome

#: Steps that a server starts at where they are a candidate; SGLang has no default of its own.
_INITIAL: Final = 3


class Stock(Policy):
    """
    Ask SGLang's own policy, that of --speculative-adaptive.

    Meant for ``dynspec replay``: it drives the installed SGLang's ``AdaptiveSpeculativeParams`` as
    SGLang's controller does. In particular an outcome is credited to whatever depth is in force
    when it arrives, which under overlap is the wrong one for a round after each change.

    Args:
        config: JSON file as for ``--speculative-adaptive-config``; None for SGLang's default.
            Candidate steps that are not candidate depths are left out.

    Raises:
        ConfigError: SGLang is not installed, or the file is not what it takes.
    """

    def __init__(self, *, config: str | None = None) -> None:
        try:
            # Here, because it brings torch and takes seconds.
            from sglang.srt.speculative import adaptive_spec_params
        except ImportError as error:
            raise ConfigError(
                expected="an installed SGLang, whose policy this is",
                found=str(error),
                remedy="pip install 'sglang-dynspec[sglang]', or choose another policy",
            ) from error
        self._module: Any = adaptive_spec_params
        self._config = config
        self._params: Any = None
        self._plans: dict[int, Plan] = {}

    def configure(self, limits: Limits) -> None:
        """Start SGLang's policy with what its configuration and the limits have in common."""
        super().configure(limits)
        self._plans = {depth: Plan(depth=depth, reason="stock") for depth in limits.depths}
        initial = _INITIAL if _INITIAL in limits.depths else limits.largest
        # Its constructor takes a file alone.
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "adaptive.json"
            path.write_text(json.dumps(self._candidates(limits)))
            self._params = self._module.AdaptiveSpeculativeParams(initial, str(path))
        # It pads to the batch sizes of CUDA graphs before it looks a batch size up.
        self._params.set_cuda_graph_bs(list(GRAPH_SIZES))

    def decide(self, observation: Observation) -> Plan:
        """Ask for the batch size's number of steps."""
        return self._plans[self._params.get_steps_for_batch(observation.batch_size)]

    def learn(self, outcome: Outcome) -> None:
        """Report accepted drafts. SGLang reports zeros for a round of zero steps."""
        accepted = list(outcome.accepted) or [0] * outcome.batch_size
        self._params.on_verify_complete(accepted, outcome.batch_size)

    def _candidates(self, limits: Limits) -> dict[str, Any]:
        try:
            loaded, _ = self._module._load_adaptive_config(self._config)
        except (OSError, ValueError) as error:
            raise ConfigError(
                expected="config to be a file for --speculative-adaptive-config",
                found=f"{self._config}: {error}",
                remedy="correct it, or leave the option out for SGLang's default",
            ) from error
        config: dict[str, Any] = copy.deepcopy(loaded)
        for slot in config.values():
            if isinstance(slot, dict):
                steps = [step for step in slot["candidate_steps"] if step in limits.depths]
                slot["candidate_steps"] = steps or [0]
        return config
