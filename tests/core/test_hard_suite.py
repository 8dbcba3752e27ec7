"""The hard worlds, what a policy has to reach in them, and what its parts are for."""

import json
from collections import Counter
from dataclasses import replace
from hashlib import sha256

import pytest
from typer.testing import CliRunner

from sglang_dynspec import ConfigError
from sglang_dynspec.cli import build_app
from sglang_dynspec.estimates import proportion
from sglang_dynspec.policies import goodput
from sglang_dynspec.replay.ablations import Part, parts, taken_out
from sglang_dynspec.replay.checks import Check
from sglang_dynspec.replay.hard_ablations import ABLATED, ablate, damage
from sglang_dynspec.replay.hard_checks import check_hard
from sglang_dynspec.replay.hard_run import by_kind, find_any_world, replay_hard
from sglang_dynspec.replay.suites import Entry
from sglang_dynspec.replay.worlds import find_world, worlds
from sglang_dynspec.replay.worlds.drawn import PUBLISHED_SEED, drawn
from sglang_dynspec.simulator.service import run_fixed, run_world, score_run

GOODPUT = Entry(name="goodput", policy="goodput")
PLAIN = Entry(name="plain", policy="never")


def row(world="a-1", kind="a", seed=0, **fields):
    defaults = {
        "share": 0.99,
        "first_share": 0.99,
        "of_best": 0.99,
        "of_plain": 1.2,
        "plain_is_best": False,
        "stuck": 0,
        "switches_per_1000": 0.0,
        "policy_errors": 0,
        "followings": [],
        "best_depth": 3,
        "token_p99": 0.03,
        "gap_p99": 0.06,
        "fixed": {"3": {"token_p99": 0.02, "gap_p99": 0.02}},
    }
    return {"world": world, "kind": kind, "seed": seed, **defaults | fields}


def checks(*rows, stubborn=(), suite="hard"):
    document = {
        "suite": suite,
        "results": list(rows),
        "kinds": by_kind(rows),
        "stubborn": list(stubborn),
    }
    return {each.name: each for each in check_hard(document)}


def following(**fields):
    defaults = {
        "depth": 3,
        "was": True,
        "left": 9,
        "due": True,
        "back": 40,
        "plain_moved": 0.01,
    }
    return defaults | fields


class TestWorlds:
    def test_there_are_enough_of_each_kind(self):
        kinds = Counter(each.kind for each in worlds().values())
        assert len(worlds()) == sum(kinds.values()) == 134
        assert len(kinds) == 21
        assert min(kinds.values()) >= 4

    def test_each_is_named_by_its_kind_and_lasts(self):
        for name, each in worlds().items():
            assert name == each.name
            assert name.startswith(f"{each.kind}-")
            assert 10.0 <= each.seconds <= 120.0
            assert sum(kind.share for kind in each.requests.kinds) == pytest.approx(1.0)

    def test_they_are_fixed(self):
        """A world that is changed makes every published figure another one: measure anew then."""
        digest = sha256(repr(list(worlds().values())).encode()).hexdigest()
        assert digest.startswith("4cb3cbedb2f65334")

    def test_none_of_that_name(self):
        with pytest.raises(ConfigError, match="steady-3-low"):
            find_world("steady-3-loww")

    def test_in_different_worlds_different_depths_are_best(self):
        best = set()
        for name in ("steady-200-low", "steady-96-low", "steady-20-low"):
            short = replace(find_world(name), seconds=3.0)
            scores = {depth: score_run(run_fixed(depth, short)).share for depth in short.depths}
            best.add(max(scores, key=scores.get))
        assert best == {0, 1, 3}


class TestDrawn:
    def test_the_same_seed_draws_the_same_worlds(self):
        assert drawn(1, 3) == drawn(1, 5)[:3]
        assert drawn(1, 2) != drawn(2, 2)
        assert PUBLISHED_SEED != 1

    def test_they_are_found_by_name(self):
        assert find_any_world("drawn-1-004") == drawn(1, 5)[4]
        assert find_any_world("steady-3-low") is find_world("steady-3-low")

    def test_they_differ_in_everything(self):
        many = drawn(3, 120)
        assert {each.server.name for each in many} == {
            "h200-8b",
            "small-gpu",
            "nvlink-moe",
            "pcie-1t",
        }
        assert len({each.depths for each in many}) == 6
        for share, what in (
            (0.2, lambda each: each.load.rate is not None),
            (0.08, lambda each: each.window == 0),
            (0.3, lambda each: each.cold > 0),
            (0.5, lambda each: bool(each.running)),
            (0.4, lambda each: bool(each.bends)),
            (0.15, lambda each: each.pace.modes is not None),
            (0.3, lambda each: len(each.level.knots) > 1),
            (0.4, lambda each: len(each.requests.kinds) == 1),
        ):
            assert sum(map(what, many)) / 120 == pytest.approx(share, abs=0.13)


class TestReplay:
    def test_a_sample(self):
        names = ("stale-32", "slow-depth-8-two")
        document = replay_hard(PLAIN, names, seeds=1, jobs=1)
        stale, slow = document["results"]
        assert (stale["world"], slow["world"]) == names
        assert stale["depth_shares"] == {"0": 1.0, "1": 0.0, "3": 0.0}
        assert stale["of_plain"] == pytest.approx(1.0)
        assert stale["fixed"]["0"]["share"] == stale["share"]
        assert stale["best_depth"] == 3
        assert stale["of_best"] == pytest.approx(stale["share"] / stale["fixed"]["3"]["share"])
        assert [each["kind"] for each in document["kinds"]] == ["stale", "slow-depth"]
        # The guard alone leaves a depth that became slow, where plain is looked at now and then.
        (guarded,) = document["stubborn"]
        assert guarded["followings"][0]["left"] > 0
        assert json.loads(json.dumps(document)) == document

    def test_the_known_faults_are_seen(self):
        """Of the policy as it is; whoever mends it is to turn these round."""
        document = replay_hard(GOODPUT, ("stale-32", "slow-depth-8"), seeds=1, jobs=1)
        failed = {each.name for each in check_hard(document) if not each.passed}
        assert {"kind stale", "stuck", "taken back", "plain moved"} <= failed


class TestChecks:
    def test_all_is_well(self):
        found = checks(row(followings=[following()]), stubborn=[row(followings=[following()])])
        assert all(each.passed for each in found.values())
        assert not found["plain kept"].measured
        assert not found["steady switches"].measured

    @pytest.mark.parametrize(
        ("name", "fields"),
        [
            ("mean share", {"share": 0.984}),
            ("kind a", {"of_best": 0.949}),
            ("stuck", {"stuck": 501}),
            ("plain kept", {"plain_is_best": True, "of_plain": 0.989}),
            ("slow left", {"followings": [following(left=65)]}),
            ("slow left", {"followings": [following(left=None)]}),
            ("taken back", {"followings": [following(back=513)]}),
            ("taken back", {"followings": [following(back=None)]}),
            ("plain moved", {"followings": [following(plain_moved=0.051)]}),
            ("steady switches", {"kind": "steady", "switches_per_1000": 10.1}),
            ("policy errors", {"policy_errors": 1}),
        ],
    )
    def test_each_can_fail(self, name, fields):
        found = checks(row(**fields))
        assert [each.name for each in found.values() if not each.passed] == [name]

    def test_never_is_worse_than_late(self):
        found = checks(row(followings=[following()]), row("a-2", followings=[following(back=None)]))
        assert (found["taken back"].figure, found["taken back"].where) == (
            None,
            "never: a-2, seed 0",
        )

    def test_what_was_not_due_is_not_asked_for(self):
        found = checks(row(followings=[following(was=False, left=None, due=False, back=None)]))
        assert not found["slow left"].measured
        assert not found["taken back"].measured

    def test_the_guard_has_less_time(self):
        found = checks(row(), stubborn=[row(followings=[following(left=33)])])
        assert not found["slow left by guard"].passed
        assert found["slow left by guard"].where == "a-1, seed 0"

    def test_the_worst_world_of_a_kind_decides_in_the_mean_over_seeds(self):
        good = row(of_best=1.2)
        found = checks(good, row("a-2", of_best=0.9), row("a-2", seed=1, of_best=1.1))
        assert found["kind a"].passed
        found = checks(good, row("a-2", of_best=0.9), row("a-2", seed=1, of_best=0.95))
        assert (found["kind a"].passed, found["kind a"].where) == (False, "a-2")

    def test_latency_is_compared_with_the_best_depths(self):
        (kind,) = by_kind([row(), row(token_p99=None), row(token_p99=0.04)])
        assert kind["token_p99"] == pytest.approx((1.5 * 2.0) ** 0.5, abs=1e-4)
        assert kind["gap_p99"] == 3.0

    def test_the_unseen_may_be_a_hundredth_less(self):
        assert checks(row(share=0.976), suite="drawn")["mean share"].passed
        assert not checks(row(share=0.974), suite="drawn")["mean share"].passed


class TestAblations:
    @pytest.mark.parametrize("part", parts(), ids=lambda part: part.name)
    def test_every_part_is_there_to_be_taken_out(self, part):
        short = replace(find_world("steady-20-low"), seconds=1.0)
        with taken_out(part):
            run = run_world("goodput", short, options=part.options, **part.guard)
        assert run.policy_errors == 0

    def test_it_is_put_back(self):
        before = (goodput._PATIENCE, vars(proportion._Alarm)["sum"])
        for name in ("patience", "CUSUM"):
            with taken_out(next(part for part in parts() if part.name == name)):
                assert (goodput._PATIENCE, vars(proportion._Alarm)["sum"]) != before
        assert (goodput._PATIENCE, vars(proportion._Alarm)["sum"]) == before

    def test_one_that_is_gone_is_named(self):
        gone = Part(
            name="gone", of="cost", instead=(("sglang_dynspec.policies.goodput:Goodput.no", id),)
        )
        with pytest.raises(ConfigError, match=r"Goodput\.no.*'gone'"), taken_out(gone):
            pass

    def test_worlds_of_every_kind_are_used(self):
        used = {find_world(name).kind for name in ABLATED}
        assert used == {each.kind for each in worlds().values()}

    @pytest.mark.parametrize(
        ("at_most", "bound", "whole", "without", "expected"),
        [
            (False, 0.95, 0.97, 0.92, 1.0),
            (False, 0.95, 0.92, 0.97, -1.0),
            (True, 500, 0, 250, 0.5),
            (True, 500, None, 0, -2.0),
            (True, 64, 64, None, 1.0),
            (True, 500, 3000, 2000, 0.0),
        ],
    )
    def test_damage(self, at_most, bound, whole, without, expected):
        made = [
            Check(name="x", figure=figure, bound=bound, at_most=at_most)
            for figure in (whole, without)
        ]
        assert damage(*made) == pytest.approx(expected)

    def test_a_part_that_counts_and_one_that_does_not(self):
        chosen = [part for part in parts() if part.name in {"probing", "lengths"}]
        found = ablate(GOODPUT, ["slow-depth-8"], of=chosen, jobs=1)
        by_name = {each["part"]: each for each in found["parts"]}
        assert by_name["lengths"]["idle"]
        assert by_name["probing"]["fails"] == ["slow left"]
        assert by_name["probing"]["without"] is None


class TestCommand:
    @pytest.fixture
    def dynspec(self):
        def run(*arguments, status=0):
            result = CliRunner().invoke(build_app(), ["replay", "--jobs", "1", *arguments])
            if isinstance(result.exception, ConfigError):
                return result.exception
            assert result.exit_code == status, result.output
            return result.stdout

        return run

    SHORT = ("--suite", "hard", "--scenario", "cold-start-h200-24", "--seeds", "1")

    def test_tables(self, dynspec):
        shown = dynspec(*self.SHORT, "--policy", "never")
        lines = [" ".join(line.split()) for line in shown.splitlines()]
        assert any(line.startswith("cold-start 1 ") for line in lines)
        assert any(line.startswith("FAIL kind cold-start 0.6") for line in lines)

    def test_json_and_exit_status(self, dynspec):
        document = json.loads(dynspec(*self.SHORT, "--policy", "never", "--json"))
        assert document["suite"] == "hard"
        assert document["policy"] == "never"
        assert {each["name"] for each in document["checks"]} >= {"mean share", "stuck"}
        dynspec(*self.SHORT, "--policy", "never", "--check", status=1)

    def test_list(self, dynspec):
        listed = json.loads(dynspec("--suite", "hard", "--list", "--json"))
        assert len(listed) == 134
        assert "untimed-200-all" in dynspec("--suite", "hard", "--list")

    def test_what_cannot_be_is_refused(self, dynspec, tmp_path):
        error = dynspec("--suite", "hard", "--plot", str(tmp_path))
        assert (
            error.expected
            == "--suite hard or drawn without --plot, and --ablations with hard alone"
        )
        assert dynspec("--suite", "hard", "--scenario", "nope").found == "'nope'"
        assert dynspec(*self.SHORT, "--policy", "nope").found == "'nope'"
        assert dynspec("--ablations").expected == error.expected
