"""The identity of a server, read from its arguments and its GPU."""

from __future__ import annotations

from typing import Any

from sglang_dynspec.identity import Identity
from sglang_dynspec_hooks.contract.version import installed_version


def identity_of(server_args: Any, *, gpu: str = "") -> Identity:
    """
    Describe a server by its arguments.

    Args:
        server_args: SGLang's ``ServerArgs``, or a view of them.
        gpu: Name of its GPU; empty where it is not known, as in the launcher.
    """
    backend = server_args.decode_attention_backend or server_args.attention_backend
    return Identity(
        gpu=gpu,
        model=str(server_args.model_path),
        draft=str(server_args.speculative_draft_model_path or ""),
        sglang=installed_version(),
        attention_backend=str(backend or ""),
        tensor_parallel=int(server_args.tp_size),
    )


def gpu_name() -> str:
    """
    Return the name of this process's GPU, empty without one.

    Starts CUDA where it has not been started: call it in the scheduler, never in the launcher.
    """
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""
