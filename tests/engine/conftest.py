"""Engines shared by the tests: one plain reference, then ours, one alive at a time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_dynspec_cpu import scripted
from sglang_dynspec_cpu.engine import CpuEngine
from tests.engine import workloads

#: Prompt tokens per prefill pass, so that longer prompts come in chunks.
CHUNK = 64

#: Algorithm and scheduler loop of the engines that most tests run on.
COMBINATIONS = [
    pytest.param((algorithm, overlap), id=f"{algorithm}-{'overlap' if overlap else 'sync'}")
    for algorithm in ("STANDALONE", "EAGLE3")
    for overlap in (True, False)
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.engine)


class Engine:
    """A running engine under test, its script and its probes."""

    def __init__(self, inner: CpuEngine, directory: Path) -> None:
        self.inner = inner
        self.directory = directory
        self.capacity = inner.free_kv()
        self.overlap = not inner.arguments.get("disable_overlap_schedule", False)
        #: Answers to a sampled workload, in plain rounds, by the engine when it was fresh.
        self.sampled: list[list[int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def play(self, **script: Any) -> None:
        """Play a script from its beginning, from the next round on."""
        scripted.write(self.directory / scripted.FILE_NAME, script)

    def state(self) -> dict[str, Any]:
        return self.inner.internal_state()["dynspec"]

    def calls(self) -> dict[str, int]:
        """Calls so far of the code that plain rounds must not reach."""
        return json.loads((self.directory / "calls.json").read_text())

    def answer(self, load: workloads.Workload) -> list[list[int]]:
        return [list(done.output_ids) for done in load.send(self.inner)]

    def set_upkeep(self, window: int) -> None:
        assert self.inner.set_internal_state(dynspec_upkeep_window=window)

    def check(self) -> None:
        """What must hold after any test: obeyed, nothing leaked, no fault."""
        state = self.state()
        expected = {"mismatches": 0, "unmarked": 0, "mark_faults": 0, "policy_errors": 0}
        assert {name: state[name] for name in expected} == expected
        assert state["impossible_outcomes"] == 0
        upkeep = state["upkeep"]
        assert {name: upkeep[name] for name in ("pending", "gaps", "faults")} == {
            "pending": 0,
            "gaps": 0,
            "faults": 0,
        }
        assert self.inner.free_kv() == self.capacity


def start(directory: Path, cache: Path, **arguments: Any) -> Engine:
    """Start an engine with the probed, scripted policy."""
    dynspec = {
        "policy": "tests.engine.probes:Probed",
        "options": {
            "path": str(directory / scripted.FILE_NAME),
            "report": str(directory / "calls.json"),
            "dump": str(directory) if arguments.pop("dump", False) else "",
        },
        "depths": (0, 1, 3),
        **scripted.UNBOUNDED,
        **arguments.pop("dynspec", {}),
    }
    return Engine(CpuEngine(cache=cache, dynspec=dynspec, **arguments).start(), directory)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def plain(models: Path) -> dict[str, list[Any]]:
    """
    What SGLang without speculation answers to every workload; one engine, once.

    In chunks as the engines under test: sampled answers depend on the order of the draws.
    """
    with CpuEngine(cache=models, chunked_prefill_size=CHUNK) as engine:
        return {load.name: load.send(engine) for load in (workloads.SAMPLING, *workloads.GREEDY)}


@pytest.fixture(scope="session")
def plain_ids(plain: dict[str, list[Any]]) -> dict[str, list[list[int]]]:
    return {name: [list(done.output_ids) for done in answers] for name, answers in plain.items()}


@pytest.fixture(scope="session", params=COMBINATIONS)
def shared_engine(
    request: pytest.FixtureRequest,
    plain: dict[str, list[Any]],
    models: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    algorithm, overlap = request.param
    engine = start(
        tmp_path_factory.mktemp("engine"),
        models,
        algorithm=algorithm,
        overlap=overlap,
        chunked_prefill_size=CHUNK,
    )
    engine.play(mode="fixed", depth=0)
    engine.sampled = engine.answer(workloads.SAMPLING)
    yield engine
    engine.shutdown()


@pytest.fixture
def engine(shared_engine: Engine) -> Iterator[Engine]:
    """A shared engine; each test leaves it whole."""
    shared_engine.flush_cache()
    shared_engine.set_upkeep(4)
    yield shared_engine
    shared_engine.play(mode="fixed", depth=0)
    shared_engine.check()
