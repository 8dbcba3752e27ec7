"""
The configuration: one frozen model, every key known.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from sglang_dynspec.config import sources as _sources
from sglang_dynspec.config.files import check_name, check_readable
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.trace import check_trace_path

#: Largest depth that may be asked for. SGLang reserves 2 x (depth + 1) KV slots for each request.
DEEPEST = 16

#: Largest depth when the server's arguments do not name one.
DEFAULT_LARGEST = 3

#: Default candidates are those of these that do not exceed the largest depth, and itself.
_DEFAULT_DEPTHS = (0, 1, 3)

#: Default upkeep window, where the largest depth allows it.
_DEFAULT_WINDOW = 4


class Config(BaseModel):
    """
    Everything a user can set.

    Attributes:
        policy: A name that ``dynspec policies`` lists, or ``package.module:Class``.

        options: Options of the policy, JSON values.

        depths: Candidate depths, 0 always among them. None: chosen from the largest depth.

        upkeep_window: Plain rounds between two upkeep passes: 1 for every round, up to the largest
            depth + 1. 0 turns upkeep off, which leaves the draft model without its context at
            re-entry. None: 4, or as much as the largest depth allows.

        plain_graphs: Capture CUDA graphs for plain rounds. Without them plain rounds run eagerly,
            and the graphs' memory is saved.

        exact_sampling: Decode a batch plainly while it holds a request whose sampling SGLang's
            speculative sampler only approximates (penalties, min_p, custom logit processors).

        min_dwell: Rounds a depth stays in force before the guard lets it change.

        dead_band: Smallest predicted relative gain the guard changes depth for; 0.01 is 1 %.

        switches_per_1000: Changes of depth the guard lets pass in 1000 rounds of steady load. A
            change that follows the batch size up or down by a factor of two counts as a quarter.
            1000 holds none back.

        exploration_budget: Share of the tokens that probes may cost, 0.005 for 0.5 %. Past it the
            guard holds probes back. 0 allows none, 1 all.

        never_worse: Decode plainly where a depth has been measured below the plain rate. None: if
            the policy itself goes by time; one that goes by a table is taken at its word.

        watchdog: Decode plainly after the acceptance of drafts has collapsed, and try again now and
            then. Applies to every policy.

        error_budget: Faults of the policy that are tolerated. At the next one the guard holds plain
            for the rest of the process.

        slow_policy_us: Microseconds a policy may take for one round before it counts as slow.

        trace: File to record every round in.

        calibration: File that ``dynspec calibrate`` wrote, for policies that predict time.

        allow_unproved: Serve model families this version has not been proved on.

        seed: Seed for policies that draw random numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    policy: str = "goodput"
    options: dict[str, Any] = Field(default_factory=dict)
    depths: tuple[int, ...] | None = None
    upkeep_window: Annotated[int, Field(ge=0, le=DEEPEST + 1)] | None = None
    plain_graphs: bool = True
    exact_sampling: bool = True
    min_dwell: int = Field(default=4, ge=0)
    dead_band: float = Field(default=0.01, ge=0.0)
    switches_per_1000: int = Field(default=10, ge=1, le=1000)
    exploration_budget: float = Field(default=0.005, ge=0.0, le=1.0)
    never_worse: bool | None = None
    watchdog: bool = True
    error_budget: int = Field(default=8, ge=0)
    slow_policy_us: float = Field(default=1000.0, gt=0.0)
    trace: Annotated[Path, Field(strict=False)] | None = None
    calibration: Annotated[Path, Field(strict=False)] | None = None
    allow_unproved: bool = False
    seed: int = 0

    @field_validator("options", mode="before")
    @classmethod
    def _options_are_json(cls, value: object) -> object:
        # They travel to child processes as JSON: refuse here what JSON cannot hold, and bring the
        # rest into the form it has there (tuples as lists, keys as strings).
        try:
            return json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                expected="options to be JSON values",
                found=f"{value!r} ({error})",
                remedy="use numbers, strings, booleans, lists and objects",
            ) from error

    @field_validator("depths", mode="before")
    @classmethod
    def _depths_are_candidates(cls, value: object) -> object:
        return None if value is None else _checked_depths(value)

    @field_validator("trace", "calibration")
    @classmethod
    def _files_have_names(cls, value: Path | None) -> Path | None:
        return None if value is None else check_name(value)

    @classmethod
    def load(
        cls,
        *,
        flags: Mapping[str, Any] | None,
        option_pairs: list[str],
        config_file: Path | None,
        environ: Mapping[str, str],
    ) -> Self:
        """
        Merge all sources and check the result.

        In order of precedence: flags and option pairs (a pair wins over a flag, a later pair over
        an earlier one), the TOML file, the environment (``SGLANG_DYNSPEC_<FIELD>``), the defaults.
        Options belong to a policy: where a source names another policy than the sources below it,
        their options are left behind.

        Args:
            flags: Fields given by name. A value of None stands for a flag that was not given.

            option_pairs: ``KEY=VALUE`` texts. KEY is a field of this model, else an option of the
                policy. The value is JSON where it parses as such, else the text itself; lists may
                be written ``0,1,3``.

            config_file: A TOML file: fields at the top level, the policy's options in [options].

            environ: The environment.

        Returns:
            The configuration, not yet resolved.

        Raises:
            ConfigError: A key is unknown, a value is refused, or a file cannot be used.
        """
        fields = cls.model_fields
        merged = _sources.merge(
            fields["policy"].default,
            [
                _sources.from_environment(environ, fields),
                _sources.from_file(config_file, fields),
                _sources.from_flags(flags, fields),
                _sources.from_pairs(option_pairs, fields),
            ],
        )
        config = cls._validated(merged)
        # The files that were checked, wherever the process that opens them runs.
        files: dict[str, Path] = {}
        if config.trace is not None:
            check_trace_path(config.trace)
            files["trace"] = config.trace.absolute()
        if config.calibration is not None:
            check_readable(config.calibration)
            files["calibration"] = config.calibration.absolute()
        return config.model_copy(update=files)

    def resolve(self, largest_depth: int | None) -> "ResolvedConfig":
        """
        Fill in what depends on the largest depth, and refuse what contradicts it.

        Resolving a resolved configuration again, with the same depth, changes nothing.

        Args:
            largest_depth: The largest depth the server's arguments ask for, or None where they are
                silent: then the largest of `depths`, or else 3.

        Returns:
            A configuration that leaves nothing open.

        Raises:
            ConfigError: `depths` or `upkeep_window` does not fit the largest depth.
        """
        largest = largest_depth
        if largest is None:
            largest = DEFAULT_LARGEST if self.depths is None else self.depths[-1]
        if not 1 <= largest <= DEEPEST:
            raise ConfigError(
                expected=f"a largest depth from 1 to {DEEPEST}",
                found=str(largest),
                remedy="change --speculative-num-steps",
            )
        depths = self.depths
        if depths is None:
            depths = tuple(sorted({k for k in _DEFAULT_DEPTHS if k <= largest} | {largest}))
        _check_largest(depths, largest)
        window = self.upkeep_window
        if window is None:
            window = min(_DEFAULT_WINDOW, largest + 1)
        if window > largest + 1:
            raise ConfigError(
                expected=f"upkeep_window from 0 to {largest + 1} (the largest depth + 1)",
                found=str(window),
                remedy=f"set upkeep_window={largest + 1}, or leave it out",
            )
        given = self.model_dump(exclude_unset=True)
        return ResolvedConfig(**given | {"depths": depths, "upkeep_window": window})

    def to_json(self) -> str:
        """
        Write the configuration as JSON, for a child process.
        """
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """
        Read what `to_json` wrote.

        Args:
            text: JSON.

        Returns:
            An equal configuration.

        Raises:
            ConfigError: The text is not a configuration.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise _sources.explain(error, {}) from error

    @classmethod
    def _validated(cls, merged: _sources.Merged) -> Self:
        try:
            return cls.model_validate(merged.values)
        except ValidationError as error:
            raise _sources.explain(error, merged.origins) from error


class ResolvedConfig(Config):
    """
    A configuration that fits its server's largest depth and leaves nothing open.
    """

    depths: tuple[int, ...]
    upkeep_window: Annotated[int, Field(ge=0, le=DEEPEST + 1)]


def _checked_depths(value: object) -> tuple[int, ...]:
    expected = f"depths to be whole numbers from 0 to {DEEPEST}, each once, at least one above 0"
    remedy = "for example depths=0,1,3"
    if not isinstance(value, list | tuple):
        raise ConfigError(expected=expected, found=repr(value), remedy=remedy)
    for depth in value:
        if type(depth) is not int or not 0 <= depth <= DEEPEST:
            raise ConfigError(expected=expected, found=f"{depth!r} in {value!r}", remedy=remedy)
    if len(set(value)) != len(value):
        raise ConfigError(expected=expected, found=f"a repetition in {value!r}", remedy=remedy)
    if not any(value):
        raise ConfigError(expected=expected, found=repr(value), remedy=remedy)
    return tuple(sorted({0, *value}))


def _check_largest(depths: tuple[int, ...], largest: int) -> None:
    if depths[-1] > largest:
        raise ConfigError(
            expected=f"no depth above the largest, {largest} (--speculative-num-steps)",
            found=f"{depths[-1]} in depths={list(depths)}",
            remedy=f"leave {depths[-1]} out, or raise --speculative-num-steps",
        )
    if largest not in depths:
        raise ConfigError(
            expected=f"the largest depth, {largest} (--speculative-num-steps), among the depths",
            found=f"depths={list(depths)}",
            remedy=f"add {largest}, or set --speculative-num-steps={depths[-1]}",
        )
