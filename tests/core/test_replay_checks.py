"""Every criterion fails on a result that misses it, and on no other."""

import copy

import pytest

from sglang_dynspec.replay.checks import check

SCENARIOS = [
    {"name": "still", "stationary": True, "expected": 3},
    {"name": "plain is best", "stationary": True, "expected": 0},
    {"name": "moving", "stationary": False, "expected": None},
]


def result(entry, scenario, share, seed=0, **fields):
    return {
        "entry": entry,
        "scenario": scenario,
        "seed": seed,
        "share": share,
        "worst_window": 0.95,
        "switches_per_1000": 4.0,
        "probe_loss": 0.001,
        "policy_errors": 0,
        "reactions": [],
        **fields,
    }


def reaction(turns, took, within=16, due=100):
    return {"turns": turns, "at": 90, "due": due, "took": took, "within": within}


GOOD = {
    "policy": "ours",
    "entries": [{"name": "ours"}, {"name": "plain"}, {"name": "stock"}],
    "scenarios": SCENARIOS,
    "results": [
        result("ours", "still", 0.999),
        result("ours", "plain is best", 0.998),
        result(
            "ours", "moving", 0.97, reactions=[reaction("off", 12), reaction("on", 40, within=64)]
        ),
        result("plain", "still", 0.6),
        result("plain", "plain is best", 1.0),
        result("plain", "moving", 0.8),
        result("stock", "still", 0.95, switches_per_1000=200.0),
        result("stock", "plain is best", 0.9),
        result("stock", "moving", 0.9),
    ],
}


def test_a_good_result_passes_every_criterion():
    checks = {each.name: each for each in check(GOOD)}
    assert [*checks] == [
        *("steady share", "steady mean", "worst window", "against plain"),
        *("above plain", "above stock", "switches", "turns off", "turns on"),
        *("probe loss", "policy errors"),
    ]
    assert all(each.passed and each.measured for each in checks.values())
    assert checks["steady share"].figure == 0.998
    assert checks["steady share"].where == "plain is best"
    assert checks["steady mean"].figure == pytest.approx((0.999 * 0.998) ** 0.5)
    assert checks["against plain"].figure == pytest.approx(0.998)
    assert checks["above stock"].bound == pytest.approx((0.95 * 0.9 * 0.9) ** (1 / 3))
    assert checks["turns off"].figure == 12 / 16
    assert checks["turns off"].where == "moving, 12 of 16 rounds"
    assert checks["turns on"].figure == 40 / 64


BAD = {
    # A loss in one of two stationary scenarios also costs their mean.
    ("still", "share", 0.975): {"steady share", "steady mean"},
    ("plain is best", "share", 0.985): {"against plain"},
    ("moving", "worst_window", 0.89): {"worst window"},
    ("moving", "share", 0.70): {"above stock"},
    ("moving", "share", 0.40): {"above stock", "above plain"},
    ("still", "switches_per_1000", 10.5): {"switches"},
    ("moving", "switches_per_1000", 10.5): set(),
    ("still", "worst_window", 0.5): set(),
    ("moving", "probe_loss", 0.0051): {"probe loss"},
    ("still", "policy_errors", 1): {"policy errors"},
}


@pytest.mark.parametrize(("where", "field", "value"), BAD)
def test_a_bad_result_fails_what_it_misses(where, field, value):
    document = copy.deepcopy(GOOD)
    (row,) = [
        row for row in document["results"] if (row["entry"], row["scenario"]) == ("ours", where)
    ]
    row[field] = value
    failed = {each.name for each in check(document) if not each.passed}
    assert failed == BAD[where, field, value]


@pytest.mark.parametrize(
    ("turns", "took", "within", "failed"),
    [
        ("off", 16, 16, set()),
        ("off", 17, 16, {"turns off"}),
        ("off", None, 16, {"turns off"}),
        ("on", 64, 64, set()),
        ("on", 65, 64, {"turns on"}),
        ("on", None, 512, {"turns on"}),
    ],
)
def test_a_change_is_followed_in_time(turns, took, within, failed):
    document = copy.deepcopy(GOOD)
    document["results"][2]["reactions"] = [reaction(turns, took, within)]
    checks = {each.name: each for each in check(document)}
    assert {each.name for each in checks.values() if not each.passed} == failed
    other = "turns on" if turns == "off" else "turns off"
    assert not checks[other].measured


def test_a_change_that_is_never_due_is_not_measured():
    document = copy.deepcopy(GOOD)
    document["results"][2]["reactions"] = [reaction("off", None, due=None)]
    assert not {each.name: each for each in check(document)}["turns off"].measured


def test_shares_are_means_over_seeds_and_the_rest_is_the_worst():
    document = copy.deepcopy(GOOD)
    document["results"].append(result("ours", "still", 0.979, seed=1, switches_per_1000=11.0))
    checks = {each.name: each for each in check(document)}
    assert checks["steady share"].figure == pytest.approx((0.999 + 0.979) / 2)
    assert checks["switches"].figure == 11.0
    assert checks["switches"].where == "still"


def test_what_was_not_measured_says_so():
    document = copy.deepcopy(GOOD)
    document["scenarios"] = SCENARIOS[2:]
    document["results"] = [row for row in GOOD["results"] if row["scenario"] == "moving"]
    unmeasured = {each.name for each in check(document) if not each.measured}
    assert unmeasured == {"steady share", "steady mean", "against plain", "switches"}
    shown = [each.as_json() for each in check(document)]
    assert shown[0] == {
        "name": "steady share",
        "figure": None,
        "bound": 0.98,
        "at_most": False,
        "where": "",
        "measured": False,
        "passed": True,
    }
