"""What a server of ours resolves to, from the command line and from Python."""

import json
from pathlib import Path

import pytest

from tests.seams.harness import Resolver

DEFAULTS = {
    "policy": "goodput",
    "options": {},
    "depths": [0, 1, 3],
    "upkeep_window": 4,
    "plain_graphs": True,
    "exact_sampling": True,
    "min_dwell": 4,
    "dead_band": 0.01,
    "switches_per_1000": 10,
    "exploration_budget": 0.005,
    "never_worse": None,
    "watchdog": True,
    "error_budget": 8,
    "slow_policy_us": 1000.0,
    "trace": None,
    "calibration": None,
    "allow_unproved": False,
    "seed": 0,
}


def test_defaults(resolver: Resolver) -> None:
    answer = resolver.ask(argv=resolver.argv())
    assert answer["resolved"] == {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "max_running_requests": None,
        "attention_backend": "torch_native",
        "enable_mixed_chunk": False,
    }
    # The record carries what was resolved; the environment what the user gave, for a next engine.
    assert answer["config"] == DEFAULTS
    assert answer["exported"] == {**DEFAULTS, "depths": None, "upkeep_window": None}


@pytest.mark.parametrize("algorithm", ["EAGLE", "NEXTN", "eagle"])
def test_other_names_of_eagle(resolver: Resolver, algorithm: str) -> None:
    answer = resolver.ask(argv=resolver.argv("--speculative-algorithm", algorithm))
    assert answer["resolved"]["speculative_algorithm"] == "EAGLE"
    assert answer["config"] == DEFAULTS


@pytest.mark.parametrize(
    ("flags", "steps", "depths"),
    [
        (["--speculative-num-steps", "5"], 5, [0, 1, 3, 5]),
        (["--dynspec-option", "depths=2,6"], 6, [0, 2, 6]),
        (["--speculative-num-steps", "2", "--dynspec-option", "depths=2"], 2, [0, 2]),
        (["--speculative-num-steps", "4", "--speculative-num-draft-tokens", "5"], 4, [0, 1, 3, 4]),
    ],
)
def test_the_largest_depth(
    resolver: Resolver, flags: list[str], steps: int, depths: list[int]
) -> None:
    answer = resolver.ask(argv=resolver.argv(*flags))
    assert answer["config"]["depths"] == depths
    assert answer["resolved"]["speculative_num_steps"] == steps
    assert answer["resolved"]["speculative_num_draft_tokens"] == steps + 1


def test_a_depth_outside_the_candidates_is_refused(resolver: Resolver) -> None:
    argv = resolver.argv("--speculative-num-steps", "5", "--dynspec-option", "depths=0,3")
    error = resolver.refusal(argv)
    assert error.startswith("expected the largest depth, 5 (--speculative-num-steps), among the")
    assert "; found depths=[0, 3]; " in error


def test_the_running_cap_is_the_plain_servers(resolver: Resolver) -> None:
    plain = resolver.ask(
        kwargs={
            "model_path": resolver.path("llama"),
            "device": "cpu",
            "attention_backend": "torch_native",
        }
    )
    stock = resolver.ask(argv=resolver.argv(enabled=False))
    ours = resolver.ask(argv=resolver.argv())
    assert stock["resolved"]["max_running_requests"] == 48
    assert stock["config"] is None
    assert ours["resolved"]["max_running_requests"] is None
    assert plain["resolved"]["max_running_requests"] is None
    assert ours["graph_max_bs"] == plain["graph_max_bs"]


def test_a_running_cap_that_was_given_is_kept(resolver: Resolver) -> None:
    answer = resolver.ask(argv=resolver.argv("--max-running-requests", "40"))
    assert answer["resolved"]["max_running_requests"] == 40


def test_a_policy_that_the_cap_keeps_from_switching_is_refused(resolver: Resolver) -> None:
    flags = ["--max-running-requests", "16", "--dynspec-policy", "threshold"]
    flags += ["--dynspec-option", "batch_size=64"]
    error = resolver.refusal(resolver.argv(*flags))
    assert error.startswith("expected batch_size of at most 16")
    assert "; found 64" in error


def test_an_unknown_policy_is_refused(resolver: Resolver) -> None:
    error = resolver.refusal(resolver.argv("--dynspec-policy", "treshold"))
    assert error.startswith("expected a policy's name, or package.module:Class; found 'treshold'; ")
    assert "threshold" in error.rpartition("; ")[2]


def test_an_unknown_key_is_refused(resolver: Resolver) -> None:
    error = resolver.refusal(resolver.argv("--dynspec-option", "min_dwel=3"))
    assert "found 'min_dwel'" in error


def test_an_overlapping_table_is_refused(resolver: Resolver) -> None:
    table = json.dumps({"1-16": 3, "8-": 0})
    flags = ["--dynspec-policy", "depth_table", "--dynspec-option", f"table={table}"]
    error = resolver.refusal(resolver.argv(*flags))
    assert error.startswith("expected ")
    assert "; found " in error


def test_a_trace_without_a_directory_is_refused(resolver: Resolver, tmp_path: Path) -> None:
    file = str(tmp_path / "missing" / "trace.jsonl")
    error = resolver.refusal(resolver.argv("--dynspec-trace", file))
    assert error.startswith(f"expected a writable file for the trace at {file}; found no directory")
    answer = resolver.ask(argv=resolver.argv("--dynspec-trace", str(tmp_path / "trace.jsonl")))
    assert answer["config"]["trace"] == str(tmp_path / "trace.jsonl")


def test_an_engine_from_python(resolver: Resolver) -> None:
    answer = resolver.ask(enable={"policy": "always", "seed": 7}, kwargs=resolver.kwargs())
    assert answer["config"] == {**DEFAULTS, "policy": "always", "seed": 7}
    assert answer["resolved"]["max_running_requests"] is None


def test_an_engine_from_python_raises_instead_of_exiting(resolver: Resolver) -> None:
    answer = resolver.ask(enable={}, kwargs=resolver.kwargs(tp_size=2))
    assert answer["kinds"][:1] == ["ConfigError"]
    assert "ValueError" in answer["kinds"]
    assert answer["error"].startswith("expected --tp-size 1; found --tp-size 2; ")
    assert answer["stderr"] == ""


def test_a_record_that_was_refused_stays_refused(resolver: Resolver) -> None:
    # Refused after SGLang resolved it: it must not pass for resolved when it is used again.
    answer = resolver.ask(enable={"policy": "nope"}, kwargs=resolver.kwargs(), again=True)
    assert answer["kinds"][0] == "RuntimeError"
    assert answer["error"].startswith("resolution already failed on this ServerArgs")


def test_disable_leaves_the_next_engine_alone(resolver: Resolver) -> None:
    answer = resolver.ask(enable={}, disable=True, kwargs=resolver.kwargs())
    assert answer["config"] is None
    assert answer["resolved"]["max_running_requests"] == 48


def test_a_garbled_environment_is_refused(resolver: Resolver) -> None:
    answer = resolver.ask(environ={"SGLANG_DYNSPEC": "{"}, kwargs=resolver.kwargs())
    assert answer["kinds"][0] == "ConfigError"


def test_sglangs_own_records_are_left_alone(resolver: Resolver) -> None:
    # SGLang resolves arguments without a model for itself; they have no draft to speak of.
    answer = resolver.ask(enable={}, kwargs={"model_path": "dummy"})
    assert answer["config"] is None
