import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.seams.checkpoints import write_checkpoints
from tests.seams.harness import Resolver


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoints(folder)
    return folder


@pytest.fixture(scope="session")
def resolver(checkpoints: Path) -> Iterator[Resolver]:
    resolver = Resolver(checkpoints)
    yield resolver
    resolver.close()


@pytest.fixture
def our_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="sglang_dynspec")
    return caplog
