"""The engines of a test run: started on demand, shared by tests, ended at the end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from sglang_dynspec_cpu.engine import CpuEngine


class EngineFactory:
    """
    Hands out running engines: to the same arguments the same engine, as long as it runs.

    An engine takes seconds to start and hundreds of megabytes, so only one lives at a time: a
    call with other arguments ends it, unless ``keep`` was asked for.
    """

    def __init__(self, cache: Path, create: Callable[..., CpuEngine] = CpuEngine) -> None:
        """
        Create a factory without engines.

        Args:
            cache: Where built models are kept.
            create: Makes an engine of keyword arguments.
        """
        self._cache = cache
        self._create = create
        self._live: dict[str, CpuEngine] = {}

    def __call__(self, *, keep: bool = False, **arguments: Any) -> CpuEngine:
        """
        Return a running engine.

        Args:
            keep: Whether engines with other arguments stay alive beside it.
            **arguments: As `CpuEngine` takes them.
        """
        key = repr(sorted(arguments.items()))
        engine = self._live.get(key)
        if engine is not None and not engine.is_running:
            self._live.pop(key).shutdown()
            engine = None
        if engine is None:
            if not keep:
                self.close()
            engine = self._create(**{"cache": self._cache, **arguments}).start()
            self._live[key] = engine
        return engine

    def close(self) -> None:
        """End all the engines."""
        while self._live:
            self._live.popitem()[1].shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def engine_factory(tmp_path_factory: Any) -> EngineFactory:
    """
    Return what the public pytest fixture ``dynspec_engine`` hands to tests.

    Args:
        tmp_path_factory: pytest's fixture; models of the run are kept in its directory.
    """
    return EngineFactory(tmp_path_factory.mktemp("dynspec-models"))
