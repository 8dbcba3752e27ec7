"""Seam: the speculative worker class. Ours derives from the one that SGLang chose."""

from __future__ import annotations

from typing import Any

from sglang_dynspec_hooks.contract.seam import Kind, Seam

SEAM = Seam(
    target="sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker",
    kind=Kind.AFTER,
    parameters=("self", "server_args"),
    reason="put a plain round beside the speculative one in the worker",
    removal="SGLang lets a plugin name the worker class of EAGLE and STANDALONE",
)


def handler(result: type, _algorithm: Any, server_args: Any) -> type:
    """
    Return the dynspec worker class.

    First use of any scheduler seam, and registered only where we were asked for: the place to
    confirm that all of them are in force and that the arguments went through us.

    Raises:
        SeamError: A seam is not in force, the arguments carry no configuration, or SGLang chose a
            worker that is not proved.
    """
    from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
    from sglang.srt.speculative.standalone_worker_v2 import StandaloneWorkerV2

    from sglang_dynspec.errors import SeamError
    from sglang_dynspec_hooks import carried_config, seams
    from sglang_dynspec_hooks.contract.seam import confirm_wrapped
    from sglang_dynspec_hooks.worker.worker import dynspec_worker

    confirm_wrapped(seams.scheduler())
    carried_config.config_of(server_args)
    if result not in (EAGLEWorkerV2, StandaloneWorkerV2):
        raise SeamError(
            expected="EAGLEWorkerV2 or StandaloneWorkerV2 as the speculative worker",
            found=f"{result.__module__}.{result.__qualname__}",
            remedy="start the server without --enable-plugin dynspec",
        )
    return dynspec_worker(result)
