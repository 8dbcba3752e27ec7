"""The trace of a server: what its header says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_dynspec import __version__
from sglang_dynspec.trace import TraceHeader, TraceWriter
from sglang_dynspec_hooks.contract.version import installed_version

if TYPE_CHECKING:
    from sglang_dynspec.config import ResolvedConfig


def open_trace(config: ResolvedConfig, view: Any) -> TraceWriter | None:
    """
    Open the trace that the configuration names; None without one.

    Args:
        config: The configuration.
        view: SGLang's view of the resolved server arguments, which the header describes.
    """
    if config.trace is None:
        return None
    return TraceWriter(
        config.trace,
        TraceHeader(
            sglang=installed_version(),
            dynspec=__version__,
            model=str(view.model_path),
            draft=str(view.speculative_draft_model_path),
            algorithm=str(view.speculative_algorithm),
            depths=config.depths,
            policy=config.policy,
            options=config.options,
            overlap=not view.disable_overlap_schedule,
            max_running_requests=view.max_running_requests,
            seed=config.seed,
            exact_sampling=config.exact_sampling,
        ),
    )
