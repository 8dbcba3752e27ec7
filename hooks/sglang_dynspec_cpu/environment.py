"""
What a process needs before it may import SGLang, and the arguments of a CPU server.

SGLang decides at import what it runs on, and its children import it anew. So everything is said
in environment variables, which children inherit, and the shadow of ``sgl_kernel`` comes first on
``PYTHONPATH``.
"""

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Environment variable that turns the CPU engine on, in this process and in its children.
SWITCH = "SGLANG_DYNSPEC_CPU_ENGINE"

#: Directory that holds the shadows of ``sgl_kernel`` and ``flashinfer``; first on ``PYTHONPATH``.
#: No name of a module holds a dot, so that nothing but that path leads to them.
SHADOW = Path(__file__).parent / "shadow.packages"

_VARIABLES = {
    SWITCH: "1",
    "SGLANG_USE_CPU_ENGINE": "1",
    # No compiler runs: it would take minutes for models that run in milliseconds.
    "TORCHDYNAMO_DISABLE": "1",
    # A GPU of the machine must not tempt SGLang's checks for CUDA.
    "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}

# One by default: matrices of tiny models gain nothing from a second thread, and the scheduler
# shares two cores with the tokenizer and the detokenizer.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def prepare_environment(
    env: MutableMapping[str, str] | None = None,
    *,
    threads: int = 1,
) -> MutableMapping[str, str]:
    """
    Make an environment in which SGLang runs on the CPU engine.

    Args:
        env: The environment to change, for a process to be started. None for this process: then
            ``sys.path`` gets the shadow, too, and nothing of SGLang may be imported yet.
        threads: For the arithmetic, where the environment does not say.

    Returns:
        The environment.

    Raises:
        RuntimeError: For this process, when it has imported SGLang or ``sgl_kernel`` without the
            shadow.
    """
    target = os.environ if env is None else env
    if env is None and str(SHADOW) not in sys.path:
        _refuse_late_call()
        sys.path.insert(0, str(SHADOW))
    target.update(_VARIABLES)
    for variable in _THREAD_VARIABLES:
        target.setdefault(variable, str(threads))
    others = [path for path in target.get("PYTHONPATH", "").split(os.pathsep) if path]
    target["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(SHADOW), *others]))
    return target


@contextmanager
def cpu_environment(threads: int = 1) -> Iterator[None]:
    """
    Prepare this process's environment, and give its variables back afterwards.

    ``sys.path`` keeps the shadow: SGLang, once imported, may look for it later.

    Args:
        threads: As `prepare_environment` takes them.

    Raises:
        RuntimeError: As `prepare_environment` does.
    """
    names = ("PYTHONPATH", *_VARIABLES, *_THREAD_VARIABLES)
    before = {name: os.environ.get(name) for name in names}
    try:
        prepare_environment(threads=threads)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def engine_args(
    model_path: Path,
    *,
    algorithm: str | None = None,
    draft_path: Path | None = None,
    depth: int = 3,
    overlap: bool = True,
    radix_cache: bool = True,
    page_size: int = 1,
    chunked_prefill_size: int | None = None,
) -> dict[str, Any]:
    """
    Return the arguments of a CPU server, as `sglang.Engine` takes them.

    Args:
        model_path: The target.
        algorithm: One that `ModelPair.draft` knows; None for a server without speculation.
        draft_path: The draft; needed with an algorithm.
        depth: Draft steps per round.
        overlap: Whether to use the overlap scheduler.
        radix_cache: Whether to keep finished requests' KV for requests with the same prefix.
        page_size: Slots per page of the KV pool.
        chunked_prefill_size: Most prompt tokens per prefill pass; None for SGLang's default.

    Returns:
        The arguments; `command_line` turns them into those of ``sglang serve``.

    Raises:
        ValueError: When there is an algorithm and no draft.
    """
    arguments: dict[str, Any] = {
        "model_path": str(model_path),
        "device": "cpu",
        "dtype": "float32",
        "attention_backend": "torch_native",
        "cuda_graph_backend_decode": "disabled",
        "cuda_graph_backend_prefill": "disabled",
        "max_running_requests": 16,
        "max_total_tokens": 16384,
        "mem_fraction_static": 0.5,
        "page_size": page_size,
        "disable_overlap_schedule": not overlap,
        "disable_radix_cache": not radix_cache,
        # Random weights would put spaces between JSON tokens for ever.
        "constrained_json_disable_any_whitespace": True,
        "random_seed": 1,
        "log_level": "error",
    }
    if chunked_prefill_size is not None:
        arguments["chunked_prefill_size"] = chunked_prefill_size
    if algorithm is not None:
        if draft_path is None:
            raise ValueError(
                f"expected draft_path with algorithm {algorithm}; found None; pass the draft"
            )
        arguments |= {
            "speculative_algorithm": algorithm,
            "speculative_draft_model_path": str(draft_path),
            "speculative_num_steps": depth,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": depth + 1,
        }
    return arguments


def command_line(arguments: Mapping[str, Any]) -> list[str]:
    """
    Turn arguments of `engine_args` into those of ``sglang serve``.

    Args:
        arguments: By name; True becomes a flag without a value, False and None are left out.

    Returns:
        ``["--model-path", ...]``.
    """
    line: list[str] = []
    for name, value in arguments.items():
        if value is None or value is False:
            continue
        line.append("--" + name.replace("_", "-"))
        if value is not True:
            line.append(str(value))
    return line


def _refuse_late_call() -> None:
    # A process that was started in a prepared environment has the shadow on its path already.
    for name in ("sgl_kernel", "sglang"):
        module = sys.modules.get(name)
        if module is not None:
            raise RuntimeError(
                f"expected prepare_environment() before anything of SGLang is imported; found "
                f"{name} imported from {module.__file__}; call it first, or start a process of "
                f"its own for the CPU engine"
            )
