"""What a demo shows: which models, how they are served, and under what load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sglang_dynspec_cpu.checkpoint import ModelPair
    from sglang_dynspec_cpu.demo.load import Ramp
    from sglang_dynspec_cpu.demo.steps import Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One of the demos."""

    #: The model's name, to the server's clients.
    name: str
    algorithm: str
    #: Candidates of the policy.
    depths: tuple[int, ...]
    #: What `build` builds.
    title: str
    #: Builds the models: given the demo's directory, and what is told how far it is.
    build: Callable[[Path, Tell], ModelPair]
    #: Makes the load for the built models.
    ramp: Callable[[ModelPair], Ramp]
