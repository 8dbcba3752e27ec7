"""
What a policy has to reach in a replay, and whether it did.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sglang_dynspec.replay.suite_run import mean_share, shares_by_scenario

#: The bounds, each stated once.
STEADY_SHARE: Final = 0.98
STEADY_MEAN: Final = 0.99
WINDOW_SHARE: Final = 0.90
PLAIN_SHARE: Final = 0.99
SWITCHES_PER_1000: Final = 10.0
PROBE_LOSS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """
    One criterion, and how a policy stands to it.

    Attributes:
        name: The criterion, in a word or two.

        figure: What was found, the worst where there are several; None where there was nothing to
            measure it on, or a change was never followed.

        bound: What it has to reach, or may not pass.

        at_most: Whether the bound is from above.

        where: Scenario or entry of the worst figure.

        measured: Whether there was anything to measure it on.
    """

    name: str
    figure: float | None
    bound: float
    at_most: bool = False
    where: str = ""
    measured: bool = True

    @property
    def passed(self) -> bool:
        """
        Whether the criterion is met. One that was not measured is.
        """
        if not self.measured:
            return True
        if self.figure is None:
            return False
        return self.figure <= self.bound if self.at_most else self.figure >= self.bound

    def as_json(self) -> dict[str, Any]:
        """
        Give the check as plain JSON types.
        """
        return {
            "name": self.name,
            "figure": self.figure,
            "bound": self.bound,
            "at_most": self.at_most,
            "where": self.where,
            "measured": self.measured,
            "passed": self.passed,
        }


def check(document: Mapping[str, Any]) -> list[Check]:
    """
    Hold a policy against every criterion.

    Args:
        document: What `sglang_dynspec.replay.replay` gave.

    Returns:
        A check for each criterion:

        - ``steady share``: the smallest share of the oracle in a stationary scenario;
        - ``steady mean``: their geometric mean;
        - ``worst window``: the smallest share of 200 rounds on end in any other scenario;
        - ``against plain``: the smallest part of what always plain gets, where plain is best;
        - ``above ...``: mean share over the suite against each baseline's;
        - ``switches``: most switches in 1000 rounds of a stationary scenario;
        - ``turns off``, ``turns on``: most rounds to follow a change, as a share of those allowed;
        - ``probe loss``: the largest share of tokens lost in probes;
        - ``policy errors``: how often the policy failed.
    """
    policy, results = document["policy"], document["results"]
    own = [result for result in results if result["entry"] == policy]
    stationary = {each["name"] for each in document["scenarios"] if each["stationary"]}
    plain_best = {each["name"] for each in document["scenarios"] if each["expected"] == 0}
    steady = [result for result in own if result["scenario"] in stationary]
    moving = [result for result in own if result["scenario"] not in stationary]
    shares = shares_by_scenario(results, policy)
    return [
        _lowest(
            "steady share",
            STEADY_SHARE,
            ((share, name) for name, share in shares.items() if name in stationary),
        ),
        _mean("steady mean", STEADY_MEAN, steady, policy),
        _lowest("worst window", WINDOW_SHARE, _figures(moving, "worst_window")),
        _lowest(
            "against plain",
            PLAIN_SHARE,
            (
                (shares[name] / share, name)
                for name, share in shares_by_scenario(results, "plain").items()
                if name in plain_best
            ),
        ),
        *_against(document),
        _highest("switches", SWITCHES_PER_1000, _figures(steady, "switches_per_1000")),
        _followed("turns off", own, "off"),
        _followed("turns on", own, "on"),
        _highest("probe loss", PROBE_LOSS, _figures(own, "probe_loss")),
        _highest("policy errors", 0.0, _figures(own, "policy_errors")),
    ]


def _against(document: Mapping[str, Any]) -> list[Check]:
    policy, results = document["policy"], document["results"]
    ours = mean_share(results, policy)
    return [
        Check(
            name=f"above {entry['name']}",
            figure=ours,
            bound=mean_share(results, entry["name"]),
            where="geometric mean",
        )
        for entry in document["entries"]
        if entry["name"] != policy
    ]


def _figures(results: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, str]]:
    return [(result[name], result["scenario"]) for result in results]


def _lowest(name: str, bound: float, figures: Iterable[tuple[float, str]]) -> Check:
    return _worst(name, bound, list(figures), min, at_most=False)


def _highest(name: str, bound: float, figures: Iterable[tuple[float, str]]) -> Check:
    return _worst(name, bound, list(figures), max, at_most=True)


def _worst(
    name: str,
    bound: float,
    figures: list[tuple[float, str]],
    pick: Callable[[list[tuple[float, str]]], tuple[float, str]],
    *,
    at_most: bool,
) -> Check:
    if not figures:
        return Check(name=name, figure=None, bound=bound, at_most=at_most, measured=False)
    figure, where = pick(figures)
    return Check(name=name, figure=figure, bound=bound, at_most=at_most, where=where)


def _mean(name: str, bound: float, results: Sequence[Mapping[str, Any]], policy: str) -> Check:
    if not results:
        return Check(name=name, figure=None, bound=bound, measured=False)
    return Check(name=name, figure=mean_share(results, policy), bound=bound, where="geometric mean")


def _followed(name: str, results: Sequence[Mapping[str, Any]], turns: str) -> Check:
    due = [
        (reaction, f"{result['scenario']}, {reaction['took']} of {reaction['within']} rounds")
        for result in results
        for reaction in result["reactions"]
        if reaction["turns"] == turns and reaction["due"] is not None
    ]
    never = [where for reaction, where in due if reaction["took"] is None]
    if never:
        return Check(name=name, figure=None, bound=1.0, at_most=True, where=never[0])
    return _highest(
        name, 1.0, ((reaction["took"] / reaction["within"], where) for reaction, where in due)
    )
