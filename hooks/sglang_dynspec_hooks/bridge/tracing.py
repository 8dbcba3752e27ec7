"""The trace of a server: what its header says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_dynspec import __version__
from sglang_dynspec.trace import TraceHeader, TraceWriter
from sglang_dynspec_hooks.contract.version import installed_version

if TYPE_CHECKING:
    from sglang_dynspec.config import ResolvedConfig


def open_trace(config: ResolvedConfig, server_args: Any) -> TraceWriter | None:
    """
    Open the trace that the configuration names; None without one.

    Args:
        config: The configuration.
        server_args: SGLang's ``ServerArgs``, which the header describes.
    """
    if config.trace is None:
        return None
    from sglang.srt.arg_groups.overrides import resolving_view

    return TraceWriter(
        config.trace,
        TraceHeader(
            sglang=installed_version(),
            dynspec=__version__,
            model=str(server_args.model_path),
            draft=str(server_args.speculative_draft_model_path),
            algorithm=str(server_args.speculative_algorithm),
            depths=config.depths,
            policy=config.policy,
            options=config.options,
            overlap=not resolving_view(server_args).disable_overlap_schedule,
            max_running_requests=server_args.max_running_requests,
            seed=config.seed,
            exact_sampling=config.exact_sampling,
        ),
    )
