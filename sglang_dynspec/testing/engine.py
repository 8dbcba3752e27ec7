"""
The real engine on the CPU, as a fixture.
"""

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, Protocol

import pytest

_GROUP = "sglang_dynspec.testing"


class EngineFactory(Protocol):
    """
    What `dynspec_engine` gives: starts engines, and ends them with the test session.
    """

    def __call__(self, **arguments: Any) -> Any:
        """
        Get a running engine.

        Args:
            **arguments: What the engine is started with.

        Returns:
            The engine; the same one for the same arguments, where it still runs.
        """

    def close(self) -> None:
        """
        End every engine.
        """


@pytest.fixture(scope="session")
def dynspec_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineFactory]:
    """
    Start SGLang's real engine on the CPU. Needs the extra ``[testing]``.
    """
    found = next(iter(entry_points(group=_GROUP, name="engine")), None)
    if found is None:
        pytest.fail(_needed(f"no entry point called engine in the group {_GROUP}"), pytrace=False)
    try:
        factory: EngineFactory = found.load()(tmp_path_factory)
    except ImportError as error:
        pytest.fail(_needed(str(error)), pytrace=False)
    yield factory
    factory.close()


def _needed(found: str) -> str:
    return (
        "expected the extra [testing] for the fixture dynspec_engine; "
        f"found {found}; pip install 'sglang-dynspec[testing]'"
    )
