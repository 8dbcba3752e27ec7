"""
`CpuEngine`: SGLang's real engine on a CPU, as a context manager for tests.

It wraps `sglang.Engine` and adds what tests need: models built on demand, plain answers instead
of dicts, a policy that plays a script, figures of the KV pool, and an end that leaves no process.
"""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

import sglang_dynspec
from sglang_dynspec_cpu import kv_figures, scripted
from sglang_dynspec_cpu.answers import (
    Completion,
    EngineDiedError,
    KvFigures,
    Sampling,
    as_sglang,
)
from sglang_dynspec_cpu.checkpoint import ModelPair
from sglang_dynspec_cpu.environment import (
    command_line,
    cpu_environment,
    engine_args,
    prepare_environment,
)
from sglang_dynspec_cpu.models import build
from sglang_dynspec_cpu.process import EngineProcess

__all__ = [
    "Completion",
    "CpuEngine",
    "EngineDiedError",
    "KvFigures",
    "command_line",
    "engine_args",
    "prepare_environment",
]

T = TypeVar("T")


class CpuEngine:
    """
    SGLang's engine on a CPU, with or without speculation and dynspec.

    A speculative engine without dynspec runs every round at ``depth``.
    """

    def __init__(
        self,
        *,
        algorithm: str | None = None,
        model: str | ModelPair = "random",
        depth: int = 3,
        overlap: bool = True,
        radix_cache: bool = True,
        page_size: int = 1,
        chunked_prefill_size: int | None = None,
        dynspec: Mapping[str, Any] | None = None,
        cache: Path | None = None,
        threads: int = 1,
        **extra: Any,
    ) -> None:
        """
        Describe an engine; `start` starts it.

        Args:
            algorithm: One that `ModelPair.draft` knows; None for a server without speculation.
            model: A name that `models.build` knows, or built models.
            depth: Draft steps per round, with dynspec the largest candidate.
            overlap: Whether to use the overlap scheduler.
            radix_cache: Whether to keep finished requests' KV.
            page_size: Slots per page of the KV pool.
            chunked_prefill_size: Most prompt tokens per prefill pass; None for SGLang's default.
            dynspec: Fields for `sglang_dynspec.enable`; None leaves dynspec out. With the policy
                `scripted.TARGET`, a path for its script and `scripted.UNBOUNDED` are filled in.
            cache: Where built models are kept; None for the user's cache directory.
            threads: For the arithmetic, where the environment does not say.
            **extra: More arguments of `sglang.Engine`; they win over the ones above.
        """
        self.models = build(model, cache) if isinstance(model, str) else model
        self.arguments: dict[str, Any] = {
            **engine_args(
                self.models.target,
                algorithm=algorithm,
                draft_path=None if algorithm is None else self.models.draft(algorithm),
                depth=depth,
                overlap=overlap,
                radix_cache=radix_cache,
                page_size=page_size,
                chunked_prefill_size=chunked_prefill_size,
            ),
            **extra,
        }
        self._dynspec = None if dynspec is None else dict(dynspec)
        self._overlap = overlap
        self._threads = threads
        self._script: Path | None = None
        self._process: EngineProcess | None = None
        self._resources = ExitStack()

    def start(self) -> Self:
        """
        Start the engine; takes 20 seconds for the first of this process, then 3.

        Raises:
            RuntimeError: When SGLang was imported before without the CPU engine.
            EngineDiedError: When a process of the engine dies.
        """
        with ExitStack() as resources:
            resources.callback(self._forget)
            resources.enter_context(cpu_environment(self._threads))
            if self._dynspec is not None:
                scratch = resources.enter_context(TemporaryDirectory(prefix="dynspec-engine-"))
                self._enable_dynspec(self._dynspec, Path(scratch) / scripted.FILE_NAME)
                resources.callback(sglang_dynspec.disable)
            self._process = EngineProcess(self.arguments, forks=True)
            resources.callback(self._process.end)
            self._require_scheduler()
            self._resources = resources.pop_all()
        return self

    def shutdown(self) -> None:
        """End the engine and all its processes; does nothing when it is not running."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @property
    def is_running(self) -> bool:
        """Whether the engine is started and none of its processes has died."""
        return self._process is not None and self._process.is_alive

    @property
    def sgl(self) -> Any:
        """The `sglang.Engine` itself."""
        return self._running().sgl

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """
        Run a coroutine of the `sglang.Engine`, such as ``sgl.async_generate(...)``.

        Raises:
            EngineDiedError: When a process of the engine dies meanwhile.
        """
        return self._running().run(coroutine)

    def generate(
        self,
        prompts: Sequence[str] | None = None,
        sampling_params: Sampling | None = None,
        *,
        input_ids: Sequence[Sequence[int]] | None = None,
        **options: Any,
    ) -> list[Completion]:
        """
        Answer requests, all sent at once.

        Args:
            prompts: One text per request, or
            input_ids: One list of token ids per request.
            sampling_params: For all, or one per request; None for greedy.
            **options: More arguments of ``async_generate``, each for all or one per request.

        Returns:
            One answer per request, and per sample when ``n`` is above 1.
        """
        call = self.sgl.async_generate(
            prompt=None if prompts is None else list(prompts),
            input_ids=None if input_ids is None else [list(ids) for ids in input_ids],
            sampling_params=as_sglang(sampling_params),
            **options,
        )
        return [Completion.of(answer) for answer in self.run(call)]

    def stream(
        self,
        input_ids: Sequence[int],
        sampling_params: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[Completion]:
        """
        Answer one request step by step; other calls, such as `abort`, may come in between.

        Args:
            input_ids: The prompt.
            sampling_params: None for greedy.
            **options: More arguments of ``async_generate``, such as ``rid``.

        Yields:
            What there is of the answer so far, after each step.
        """
        chunks = self.run(
            self.sgl.async_generate(
                input_ids=list(input_ids),
                sampling_params=as_sglang(sampling_params),
                stream=True,
                **options,
            )
        )
        while (chunk := self.run(anext(chunks, None))) is not None:
            yield Completion.of(chunk)

    def abort(self, rid: str) -> None:
        """Abort the request that was sent with this ``rid``."""
        self.sgl.tokenizer_manager.abort_request(rid)

    def flush_cache(self) -> None:
        """Empty the radix cache once the scheduler is idle; RuntimeError if it is not soon."""
        if not any(self.run(self.sgl.tokenizer_manager.flush_cache()).success for _ in range(100)):
            raise RuntimeError("expected an idle engine; found running requests; wait for them")

    def internal_state(self) -> dict[str, Any]:
        """Return the scheduler's account of itself; takes milliseconds of its loop."""
        return dict(self.run(self.sgl.tokenizer_manager.get_internal_state())[0])

    def set_internal_state(self, **numbers: float) -> bool:
        """
        Change settings of the running scheduler, as ``/set_internal_state`` does.

        Returns:
            Whether the scheduler accepted all of them.
        """
        from sglang.srt.managers.io_struct import SetInternalStateReq

        request = SetInternalStateReq(server_args=numbers)
        return all(self.run(self.sgl.tokenizer_manager.set_internal_state(request)))

    def kv(self) -> KvFigures:
        """Return the figures of the KV pool."""
        return KvFigures(**self.internal_state()[kv_figures.KEY])

    def free_kv(self) -> int:
        """Return how many KV slots no request holds: all of them when none runs."""
        figures = self.kv()
        return figures.free + figures.evictable

    def play(self, script: Mapping[str, Any]) -> None:
        """
        Let the scripted policy play a script from now on; see `scripted.Scripted`.

        Raises:
            RuntimeError: When the engine runs without the scripted policy.
        """
        if self._script is None:
            raise RuntimeError(
                f"expected a running engine with the policy {scripted.TARGET}; found none; "
                f"start it with dynspec={{'policy': {scripted.TARGET!r}}}"
            )
        scripted.write(self._script, script)

    def _enable_dynspec(self, fields: Mapping[str, Any], script: Path) -> None:
        if fields.get("policy") == scripted.TARGET:
            self._script = script
            options = {"path": str(script), **fields.get("options", {})}
            fields = {**scripted.UNBOUNDED, **fields, "options": options}
        sglang_dynspec.enable(**fields)

    def _require_scheduler(self) -> None:
        """Refuse the other scheduler loop than asked for: a hook did not apply."""
        runs_overlap = not self.internal_state()["disable_overlap_schedule"]
        if runs_overlap != self._overlap:
            raise RuntimeError(
                f"expected an engine with overlap={self._overlap}; found overlap={runs_overlap}; "
                f"SGLang did not apply the hooks of dynspec_cpu, read its log"
            )

    def _forget(self) -> None:
        self._process = self._script = None

    def _running(self) -> EngineProcess:
        if self._process is None:
            raise RuntimeError("expected a running engine; found none; call start() first")
        return self._process
