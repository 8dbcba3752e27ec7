"""
The parts of `goodput` and of the guard, by name, and how to take each of them out.

A part earns its place by a criterion that fails without it. Parts are taken out by configuration
where that can be, and otherwise by putting something in the place of a function or a constant for
as long as a run lasts. What stands here names modules as they are; where one is rewritten, its
parts are to be listed anew.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.replay.suites import UNGUARDED

_NEVER: Final = float("inf")

_ESTIMATES: Final = "sglang_dynspec.estimates"
_POLICIES: Final = "sglang_dynspec.policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """
    A part of policy or guard.

    Attributes:
        name: What to call it.

        of: Where it is: ``acceptance``, ``cost``, ``choice``, ``probing`` or ``guard``.

        options: Options of the policy without which it is out.

        guard: Fields of `Config` without which it is out.

        instead: What stands in the place of what: ``package.module:name.name``, and what makes the
            replacement from the original.
    """

    name: str
    of: str
    options: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] = field(default_factory=dict)
    instead: tuple[tuple[str, Callable[[Any], Any]], ...] = ()


@contextmanager
def taken_out(part: Part) -> Iterator[None]:
    """
    Take a part out of the code while a block runs. Its options and guard are the caller's to pass.

    Args:
        part: The part.

    Raises:
        ConfigError: It names something that does not exist any more.
    """
    undo: list[tuple[Any, str, Any]] = []
    try:
        for target, make in part.instead:
            owner, name = _resolve(part, target)
            original = vars(owner)[name]
            undo.append((owner, name, original))
            setattr(owner, name, make(original))
        yield
    finally:
        for owner, name, original in reversed(undo):
            setattr(owner, name, original)


def _resolve(part: Part, target: str) -> tuple[Any, str]:
    """
    Find the module or class that holds what a part names.
    """
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    try:
        found: Any = importlib.import_module(module)
        for each in owners:
            found = vars(found)[each]
        vars(found)[name]
    except (ImportError, KeyError) as error:
        raise ConfigError(
            expected=f"{target}, which is the part {part.name!r}",
            found=f"nothing of that name ({error})",
            remedy="name it anew in sglang_dynspec/replay/ablations.py, or delete the part there",
        ) from error
    return found, name


def _put(value: Any, _original: Any) -> Any:
    return value


def _give(value: Any, _original: Any) -> Any:
    return partial(_constant, value)


def _constant(value: Any, *_arguments: Any, **_named: Any) -> Any:
    return value


def _without_first_rounds(original: Any) -> Any:
    def measure(self: Any, *arguments: Any, first: bool) -> None:  # noqa: ARG001
        original(self, *arguments, first=False)

    return measure


def _without_restlessness(original: Any) -> Any:
    def predicted(self: Any, *arguments: Any) -> Any:
        found = original(self, *arguments)
        self._restless = 0.0
        return found

    return predicted


def _part(name: str, of: str, *instead: tuple[str, Callable[[Any], Any]], **fields: Any) -> Part:
    return Part(name=name, of=of, instead=instead, **fields)


def _estimate(path: str, value: Any) -> tuple[str, Callable[[Any], Any]]:
    return f"{_ESTIMATES}.{path}", partial(_put, value)


def _choice(path: str, value: Any) -> tuple[str, Callable[[Any], Any]]:
    return f"{_POLICIES}.{path}", partial(_put, value)


def _silent(path: str, value: Any = None) -> tuple[str, Callable[[Any], Any]]:
    return f"sglang_dynspec.{path}", partial(_give, value)


def parts() -> tuple[Part, ...]:
    """
    List the parts.

    Returns:
        Those of the estimates first, then those of the policy, then the guard's.
    """
    return (*_of_acceptance(), *_of_cost(), *_of_choice(), *_of_probing(), *_of_guard())


def _of_acceptance() -> tuple[Part, ...]:
    of, model = "acceptance", "estimates.acceptance:AcceptanceModel"
    return (
        _part("CUSUM", of, _silent("estimates.proportion:_Alarm.sum", 0.0)),
        _part("correlation", of, _silent("estimates.proportion:Proportion._measure_spread")),
        _part(
            "staleness",
            of,
            _estimate("acceptance:_STALE", _NEVER),
            _estimate("acceptance:_MOVED", _NEVER),
        ),
        _part("hope", of, _estimate("acceptance:_HOPE", 0.0), _estimate("acceptance:_FEAR", 0.0)),
        _part("doubt of deeper", of, _estimate("acceptance:_DOUBTED", _NEVER)),
        _part("lengths", of, _silent(f"{model}._note_lengths")),
        _part("guesses", of, _silent(f"{model}._count_guesses")),
    )


def _of_cost() -> tuple[Part, ...]:
    of, model = "cost", "estimates.cost_model:CostModel"
    first = (f"sglang_dynspec.{model}._measure", _without_first_rounds)
    return (
        _part("slowdown detection", of, _silent("estimates.slowdown:Slowdown.changed", 1.0)),
        _part("monotone in size", of, _silent(f"{model}._carried", float("nan"))),
        _part("other depths", of, _silent(f"{model}._nearest_depth", (1e-6, 0.0))),
        _part("price of upkeep", of, _silent("estimates.upkeep_cost:UpkeepCost.seconds", 0.0)),
        _part("first rounds apart", of, first),
        _part(
            "doubt of few rounds",
            of,
            _estimate("cost_model:_DOUBT", 0.0),
            _estimate("cost_model:_DOUBT_TWICE", 0.0),
            _estimate("step_time:_BELIEVED", _NEVER),
        ),
        _part("ageing", of, _estimate("cost_model:_STALE", _NEVER)),
    )


def _of_choice() -> tuple[Part, ...]:
    of = "choice"
    restless = (f"{_POLICIES}.goodput:Goodput._predicted", _without_restlessness)
    return (
        _part("patience", of, _choice("goodput:_PATIENCE", 0.0)),
        _part("restlessness", of, restless),
        _part("doubt of gains", of, _choice("goodput:_DOUBT", 0.0)),
        _part("hysteresis", of, options={"min_gain": 0.0}, guard={"dead_band": 0.0}),
        _part("untimed is plain", of, _choice("goodput:_UNTIMED", _NEVER)),
        _part("small starts deep", of, _choice("goodput:_SMALL", 0)),
        _part("no guess is best", of, _choice("_prospects:_GUESS", _NEVER)),
    )


def _of_probing() -> tuple[Part, ...]:
    of, probing = "probing", "policies._probing:Probing"
    return (
        _part("probing", of, options={"exploration": 0.0}),
        _part("drift", of, _silent(f"{probing}._note_drift")),
        _part("restart", of, _silent(f"{probing}.restart")),
        _part("stall charge", of, _choice("_probing:_STALL", _NEVER)),
        _part("passing sizes", of, _choice("_probing:_PASSING", _NEVER)),
        _part("blind look", of, _choice("_probing:_BLIND", _NEVER)),
        _part("hopeless left alone", of, _choice("_probing:_HOPE", 1e9)),
        _part("longer intervals", of, _choice("_probing:_LAST_INTERVAL", 8)),
    )


def _of_guard() -> tuple[Part, ...]:
    of = "guard"
    return (
        _part("dwell", of, guard={"min_dwell": 0}),
        _part("dead band", of, guard={"dead_band": 0.0}),
        _part("switch cap", of, guard={"switches_per_1000": 1000}),
        _part("exploration budget", of, guard={"exploration_budget": 1.0}),
        _part("quarantine", of, guard={"never_worse": False}),
        _part("watchdog", of, guard={"watchdog": False}),
        _part("all of the guard", of, guard=dict(UNGUARDED)),
    )
