"""What may be changed while serving, through SGLang's own update and our handlers in it."""

import json

import pytest

from tests.seams.harness import Resolver

#: What SGLang lets a scheduler change, each judged: a new one has to be.
SGLANG = [
    "pp_max_micro_batch_size",  # a running cap, as `--max-running-requests` is one
    "speculative_accept_threshold_single",  # refused below
    "speculative_accept_threshold_acc",
    "dspark_force_budget_frac",  # DSpark's alone, an algorithm that start-up refuses
    "dspark_clear_info_records",
]
OURS = ["dynspec_force_depth", "dynspec_upkeep_window", "dynspec_warm_up"]
UNCHANGED = [None, 4, False]


def test_every_key_is_known(resolver: Resolver) -> None:
    assert resolver.ask(settings={})["keys"] == [*SGLANG, *OURS]


@pytest.mark.parametrize("key", SGLANG[1:3])
@pytest.mark.parametrize("value", [0.5, 0, 1.5])
def test_acceptance_stays_exact(resolver: Resolver, key: str, value: float) -> None:
    answer = resolver.ask(settings={"dynspec_force_depth": 1, key: value})
    assert answer["updated"] is False
    assert answer["state"] == UNCHANGED
    assert answer["log"] == (
        f"expected {key} to stay 1 (exact acceptance); found {value}; "
        "plain and speculative rounds would differ in distribution\n"
    )


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"dynspec_force_depth": 3}, [3, 4, False]),
        # A whole number, however it is written.
        ({"dynspec_force_depth": 1.0, "dynspec_upkeep_window": 2.0}, [1, 2, False]),
        ({"dynspec_force_depth": -1}, UNCHANGED),
        ({"dynspec_warm_up": 1}, [None, 4, True]),
    ],
)
def test_our_settings(resolver: Resolver, settings: dict, state: list) -> None:
    answer = resolver.ask(settings=settings)
    assert (answer["updated"], answer["state"]) == (True, state)
    assert all(value is None or type(value) in {int, bool} for value in answer["state"])


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("dynspec_force_depth", 2, "[-1, 0, 1, 3]"),
        ("dynspec_force_depth", 1.5, "[-1, 0, 1, 3]"),
        ("dynspec_force_depth", float("nan"), "[-1, 0, 1, 3]"),
        ("dynspec_upkeep_window", 5, "[0, 1, 2, 3, 4]"),
        ("dynspec_warm_up", 2, "[0, 1]"),
    ],
)
def test_our_settings_refuse(resolver: Resolver, key: str, value: float, allowed: str) -> None:
    answer = resolver.ask(settings={key: value})
    assert (answer["updated"], answer["state"]) == (False, UNCHANGED)
    assert answer["log"] == f"expected {key} to be one of {allowed}; found {value!r}\n"


@pytest.mark.parametrize("is_on", [True, False])
def test_a_change_of_the_warm_up_is_logged(resolver: Resolver, is_on: bool) -> None:
    answer = resolver.ask(settings={"dynspec_warm_up": int(is_on)})
    assert answer["log"] == f"warm_up_switched on={is_on}\n"


def body(key: str, value: object) -> str:
    return json.dumps({"server_args": {key: value}})


@pytest.mark.parametrize("value", ["1", True, "1.0", None])
def test_what_is_no_number_is_refused_over_http(resolver: Resolver, value: object) -> None:
    answer = resolver.ask(body=body("dynspec_force_depth", value))
    assert answer["status"] == 422
    (error,) = answer["answer"]["detail"]
    assert error["msg"] == (
        f"Value error, expected dynspec_force_depth to be a number; found {value!r}"
    )


@pytest.mark.parametrize("value", [1, 1.0, -1])
def test_numbers_are_read_over_http(resolver: Resolver, value: float) -> None:
    answer = resolver.ask(body=body("dynspec_force_depth", value))
    assert answer == {"status": 200, "answer": {"dynspec_force_depth": value}}


def test_the_settings_of_sglang_are_read_as_before(resolver: Resolver) -> None:
    answer = resolver.ask(body=body("pp_max_micro_batch_size", "8"))
    assert answer == {"status": 200, "answer": {"pp_max_micro_batch_size": 8}}
