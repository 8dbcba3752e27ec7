"""
A calibration: what rounds cost on one server, in a file.
"""

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.files import write_whole
from sglang_dynspec.identity import Identity

#: Version of the file's form. Raised when an older reader would misread a newer file.
VERSION = 1

#: What has to be the same for costs to be comparable at all. The rest is worth a warning.
_DECISIVE = ("gpu", "model", "draft", "tensor_parallel")

#: What a file may say, far beyond what any server does: arithmetic on it has to stay finite.
_LONGEST = 600.0
_MOST = 1 << 40

_BatchSize = Annotated[int, Field(ge=1, le=1 << 20)]

_REMEDY = "run 'dynspec calibrate' against this server, or leave the calibration out"


class CostCell(BaseModel):
    """
    The mean cost of the rounds of one depth at one batch size.

    Attributes:
        depth: The depth.

        batch_size: The padded batch size.

        seconds: Mean period of a round, in seconds.

        rounds: Rounds in the mean.

        seq_len_sum: Mean sum of committed lengths in the batch, in tokens; 0 where not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    depth: int = Field(ge=0)
    batch_size: _BatchSize
    seconds: FiniteFloat = Field(ge=1e-6, le=_LONGEST)
    rounds: int = Field(ge=1, le=_MOST)
    seq_len_sum: FiniteFloat = Field(default=0.0, ge=0, le=_MOST)


class Calibration(BaseModel):
    """
    Costs of rounds measured on one server.

    The file is JSON, an object of ``format``, ``version`` (1), ``identity`` (`Identity`),
    ``created`` (ISO 8601, may be empty), ``cells`` (a list of `CostCell`) and ``upkeep``.
    Plain cells hold rounds without an upkeep pass where ``upkeep`` gives the cost of one, else the
    mean over all plain rounds.

    Attributes:
        format: Always ``sglang-dynspec calibration``.

        version: Version of the file's form.

        identity: What it was measured on.

        created: When, ISO 8601.

        cells: The costs.

        upkeep: Seconds an upkeep pass adds to a round, by padded batch size; may be empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["sglang-dynspec calibration"] = "sglang-dynspec calibration"
    version: int = Field(default=VERSION, ge=1)
    identity: Identity = Identity()
    created: str = ""
    cells: tuple[CostCell, ...] = Field(strict=False)
    upkeep: dict[_BatchSize, Annotated[FiniteFloat, Field(ge=0, le=_LONGEST)]] = Field(
        default_factory=dict, strict=False
    )

    def save(self, path: Path) -> None:
        """
        Write the file, whole or not at all.

        Args:
            path: Where to; see `write_whole`.

        Raises:
            OSError: The file cannot be written.
        """
        write_whole(path, f"{self.model_dump_json(indent=1)}\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """
        Read a file that `save` wrote.

        Args:
            path: The file.

        Returns:
            What is in it.

        Raises:
            ConfigError: It cannot be read, is no calibration, or is of a newer version.
        """
        expected = "a calibration file, as 'dynspec calibrate' writes it"
        try:
            text = path.read_text(encoding="utf-8")
            content = json.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                expected=expected, found=f"{path}: {error}", remedy=_REMEDY
            ) from error
        version = content.get("version") if isinstance(content, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise ConfigError(
                expected=f"a calibration file of version {VERSION}",
                found=f"version {version} in {path}",
                remedy="update sglang-dynspec, or calibrate again with this version",
            )
        try:
            # From the text: JSON has no integer keys, and strict validation of a dict wants them.
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise ConfigError(
                expected=expected, found=f"{path}: {where}: {first['msg']}", remedy=_REMEDY
            ) from error

    def differences(self, identity: Identity) -> dict[str, tuple[str, str]]:
        """
        Compare what this was measured on with a server.

        Args:
            identity: The server.

        Returns:
            For each known attribute that differs, its value here and its value there.
        """
        measured, found = self.identity.model_dump(), identity.model_dump()
        return {
            name: (str(measured[name]), str(found[name]))
            for name in measured
            if measured[name] and found[name] and measured[name] != found[name]
        }

    def check(self, identity: Identity) -> dict[str, tuple[str, str]]:
        """
        Refuse a calibration of another GPU or model.

        Args:
            identity: The server that wants to use it.

        Returns:
            Differences that are worth a warning only (SGLang's version, the attention backend).

        Raises:
            ConfigError: The GPU, the model, the draft or the number of GPUs is another.
        """
        differences = self.differences(identity)
        for name in _DECISIVE:
            if name in differences:
                measured, found = differences[name]
                label = name.replace("_", " ")
                raise ConfigError(
                    expected=f"a calibration of this server's {label}, {found}",
                    found=f"one of {measured}",
                    remedy=_REMEDY,
                )
        return differences
