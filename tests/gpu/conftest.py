"""Engines on a GPU: real streams, CUDA graphs, by default small fp32 models. Run ``-m gpu``."""

import os
from pathlib import Path
from typing import Any

import pytest

from sglang_dynspec_cpu import scripted
from sglang_dynspec_cpu.answers import Completion
from sglang_dynspec_cpu.checkpoint import ModelPair
from sglang_dynspec_cpu.models import GPU_SHAPE, random_pair
from sglang_dynspec_cpu.process import EngineProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.gpu)


#: SGLang's fused CUDA kernels know no fp32, and Triton would round its operands to TF32.
EXACT = {"SGLANG_FORCE_FUSED_OP_BACKEND": "torch", "TRITON_F32_DEFAULT": "ieee"}


class GpuEngine:
    """
    A running engine on the GPU, with our plugin or, for reference, without speculation.

    Args:
        directory: The engine's own.
        algorithm: None for an engine without speculation.
        pair: What it serves; None for the small random models.
        backend: SGLang's attention backend.
        dtype: Of weights and KV; those of `pair` are converted.
        noise: Of the random STANDALONE draft.
        fused: Whether SGLang's fused kernels run, as in a server.
        dynspec: Fields of `sglang_dynspec.enable` that win over the probed policy's.
        **extra: Arguments of `sglang.Engine` that win over all.
    """

    def __init__(
        self,
        directory: Path,
        *,
        algorithm: str | None,
        pair: ModelPair | None = None,
        backend: str = "triton",
        dtype: str = "float32",
        noise: float = 0.04,
        fused: bool = False,
        dynspec: dict[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        import sglang_dynspec

        if pair is None:
            pair = random_pair(directory / "models", noise=noise, shape=GPU_SHAPE)
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        arguments: dict[str, Any] = {
            "model_path": str(pair.target),
            "dtype": dtype,
            "attention_backend": backend,
            "sampling_backend": "pytorch",
            "mem_fraction_static": 0.3,
            "max_total_tokens": 65536,
            "max_running_requests": 16,
            "cuda_graph_max_bs_decode": 16,
            "random_seed": 1,
            # Prefill graphs take longer to capture than the tests take to run.
            "cuda_graph_backend_prefill": "disabled",
            "log_level": "warning",
            **extra,
        }
        for name, value in EXACT.items():
            if fused:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        sglang_dynspec.disable()
        if algorithm is not None:
            arguments |= {
                "speculative_algorithm": algorithm,
                "speculative_draft_model_path": str(pair.draft(algorithm)),
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 4,
            }
            dump = directory / "dump"
            dump.mkdir(exist_ok=True)
            fields: dict[str, Any] = {
                "policy": "tests.engine.probes:Probed",
                "options": {
                    "path": str(directory / scripted.FILE_NAME),
                    "report": str(directory / "calls.json"),
                    "dump": str(dump),
                    "synchronizing": "error",
                },
                "depths": (0, 1, 3),
                **scripted.UNBOUNDED,
                **(dynspec or {}),
            }
            sglang_dynspec.enable(**fields)
        self._process = EngineProcess(arguments)

    def play(self, **script):
        scripted.write(self.directory / scripted.FILE_NAME, script)

    def send(self, load):
        return load.send(self)

    def generate(self, *, input_ids, sampling_params, **options):
        """As ``CpuEngine.generate``, for workloads that send themselves."""
        call = self._process.sgl.async_generate(
            input_ids=[list(ids) for ids in input_ids],
            sampling_params=[dict(params) for params in sampling_params],
            **options,
        )
        return [Completion.of(answer) for answer in self._process.run(call)]

    def state(self):
        manager = self._process.sgl.tokenizer_manager
        return self._process.run(manager.get_internal_state())[0]["dynspec"]

    def set_upkeep(self, window):
        from sglang.srt.managers.io_struct import SetInternalStateReq

        request = SetInternalStateReq(server_args={"dynspec_upkeep_window": window})
        manager = self._process.sgl.tokenizer_manager
        assert all(self._process.run(manager.set_internal_state(request)))

    def shutdown(self):
        self._process.end()
