"""SmolLM2 and its EAGLE3 head, as the pair of models that an engine serves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sglang_dynspec.errors import ConfigError
from sglang_dynspec_cpu.checkpoint import ModelPair, cached
from sglang_dynspec_cpu.smollm2.conversion import convert
from sglang_dynspec_cpu.smollm2.distribution import find_gguf

#: Where a clone has the head; the wheel does without these 16 MiB.
HEAD: Final = Path(__file__).parent / "head"
_HEAD_FILES: Final = ("config.json", "model.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmolLM2Recipe:
    """What decides the weights, without reading the file."""

    #: Of the package that holds the file.
    version: str
    #: Bytes of the file.
    size: int


def smollm2_target(cache: Path | None = None, tell: Callable[[str], None] = lambda _: None) -> Path:
    """
    Build SmolLM2 alone.

    Args:
        cache: Where checkpoints are kept; None for the user's cache directory.
        tell: Is told how far the build is, which takes ten seconds.

    Returns:
        The directory, built if it is not in the cache.

    Raises:
        ConfigError: When the package that holds the model is not installed.
    """
    source = find_gguf()
    recipe = SmolLM2Recipe(version=source.version, size=source.path.stat().st_size)
    return cached(cache, "smollm2", recipe, lambda directory: convert(source.path, directory, tell))


def smollm2_head(head: Path | None = None) -> Path:
    """
    Find the EAGLE3 head.

    Args:
        head: A directory with ``config.json`` and ``model.safetensors``; None for `HEAD`.

    Raises:
        ConfigError: When there is none.
    """
    directory = HEAD if head is None else head
    missing = [name for name in _HEAD_FILES if not (directory / name).is_file()]
    if missing:
        raise ConfigError(
            expected=f"an EAGLE3 head for SmolLM2 in {directory}",
            found=f"no {' and no '.join(missing)} there",
            remedy="give its directory (--head DIR), or work in a clone of the repository: the "
            "wheel comes without the head",
        )
    return directory


def smollm2_pair(
    cache: Path | None = None,
    *,
    head: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ModelPair:
    """
    Build SmolLM2 and find its EAGLE3 head; there is no smaller model, so no STANDALONE draft.

    Args:
        cache: Where checkpoints are kept; None for the user's cache directory.
        head: The head's directory; None for `HEAD`.
        tell: Is told how far the build is, which takes ten seconds.

    Returns:
        The directories, built if they are not in the cache.

    Raises:
        ConfigError: When the package that holds the model is not installed, or there is no head.
    """
    # The head first: looking for it takes no time.
    eagle3 = smollm2_head(head)
    return ModelPair(target=smollm2_target(cache, tell), standalone=None, eagle3=eagle3)
