"""The identity of a server, read from its arguments and its GPU."""

from __future__ import annotations

from typing import Any

from sglang_dynspec.identity import Identity
from sglang_dynspec_hooks.contract.version import installed_version


def identity_of(view: Any, *, gpu: str = "") -> Identity:
    """
    Describe a server by its arguments.

    Args:
        view: SGLang's view of its resolved arguments. The arguments themselves lack what SGLang
            decided, such as the attention backend.
        gpu: Name of its GPU; empty where it is not known, as in the launcher.
    """
    backend = view.decode_attention_backend or view.attention_backend
    return Identity(
        gpu=gpu,
        model=str(view.model_path),
        draft=str(view.speculative_draft_model_path or ""),
        sglang=installed_version(),
        attention_backend=str(backend or ""),
        tensor_parallel=int(view.tp_size),
    )


def gpu_name() -> str:
    """
    Return the name of this process's GPU, empty without one.

    Starts CUDA where it has not been started: call it in the scheduler, never in the launcher.
    """
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""
