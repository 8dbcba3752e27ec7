"""Give a speculative server the running cap of a plain one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec_hooks import carried_config
from sglang_dynspec_hooks.contract.seam import PLUGIN, Kind, Seam

if TYPE_CHECKING:
    from collections.abc import Callable

SEAM: Final = Seam(
    target="sglang.srt.arg_groups.speculative_hook.handle_speculative_decoding",
    kind=Kind.STEP,
    parameters=("server_args",),
    reason="SGLang caps a speculative server at 48 running requests, and then loses to a plain "
    "one at high concurrency by queueing alone, whatever the policy decides",
    removal="SGLang sizes speculative servers by their KV memory, as it does plain ones",
)


def handler(server_args: Any, previous: Callable[[Any], None]) -> None:
    """
    Withdraw the cap that the step puts on a server whose user gave none.

    The steps before it have sized the CUDA graphs as for a plain server, and the scheduler
    derives the number of requests from the KV pool when none is configured.

    Args:
        server_args: The `ServerArgs` that is being resolved.
        previous: The step.
    """
    if carried_config.requested(server_args) is None:
        previous(server_args)
        return
    from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view

    view = resolving_view(server_args)
    was_open = view.max_running_requests is None
    previous(server_args)
    if was_open and view.max_running_requests is not None:
        declare_resolution(server_args, PLUGIN, max_running_requests=None)
