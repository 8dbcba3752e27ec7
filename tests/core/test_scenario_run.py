"""What a policy is told in a scenario, and when."""

from dataclasses import replace

import numpy as np
import pytest

from sglang_dynspec.simulator import run_scenario, score
from tests.core.by_hand import HALF, SERVER, UNBOUND, Scripted, run


class TestRun:
    def test_an_outcome_arrives_a_round_late(self):
        policy = Scripted(lambda _: 1)
        known = []
        policy.script = lambda index: known.append(len(policy.outcomes)) or 1
        run_scenario(policy, HALF, rounds=6)
        assert known == [0, 0, 1, 2, 3, 4]
        assert [outcome.round for outcome in policy.outcomes] == [0, 1, 2, 3, 4, 5]

    def test_without_lag_it_does_not(self):
        policy = Scripted(lambda _: 1)
        known = []
        policy.script = lambda index: known.append(len(policy.outcomes)) or 1
        run_scenario(policy, HALF, rounds=4, lag=0)
        assert known == [0, 1, 2, 3]

    def test_what_the_policy_sees(self):
        policy = Scripted(lambda index: 3 if index else 0)
        made = run_scenario(policy, replace(HALF, prompt=100, output=8), rounds=40, **UNBOUND)
        seen, done = policy.observations[9], policy.outcomes[9]
        assert (seen.batch_size, seen.padded_batch_size, seen.depths) == (4, 4, (0, 1, 3))
        assert (seen.depth, seen.depth_age, seen.round) == (3, 8, 9)
        assert seen.seq_len_sum == sum(done.seq_lens) == made.seq_len_sums[9]
        assert seen.seq_len_max == max(done.seq_lens)
        assert all(100 <= length < 108 for length in done.seq_lens)
        assert done.tokens == 4 + sum(done.accepted) == made.tokens[9]
        assert len(done.accepted) == 4
        assert 0.0 < seen.kv_free < 1.0

    def test_periods_are_noisy_and_unknown_after_a_prefill(self):
        policy = Scripted(lambda _: 0)
        run_scenario(policy, replace(HALF, prefills=0.3, outliers=0.02), rounds=4000)
        periods = [outcome.period for outcome in policy.outcomes]
        assert periods[0] is None
        assert periods.count(None) / 4000 == pytest.approx(0.3, abs=0.03)
        known = np.array([period for period in periods if period is not None])
        assert (known > 1.8).mean() == pytest.approx(0.02, abs=0.008)
        assert known[known < 1.8].std() == pytest.approx(0.02, abs=0.002)
        assert np.median(known) == pytest.approx(1.0, abs=0.005)

    def test_the_first_rounds_of_each_depth_are_cold(self):
        policy = Scripted([3, 3, 1, 0, 0, 3, 3, 0].__getitem__)
        made = run_scenario(
            policy, replace(HALF, cold=5.0, prefills=0.0, outliers=0.0), rounds=8, **UNBOUND
        )
        # Whatever the noise of the rest, 5 s is what compiling takes.
        cold = [5.0, 0.0, 5.0, 5.0, 0.0, 0.0, 0.0, 0.0]
        assert made.periods - made.seconds == pytest.approx(cold, abs=0.2)
        assert [outcome.period for outcome in policy.outcomes[1:]] == made.periods[1:].tolist()

    def test_upkeep_guesses_the_token_after_it(self):
        policy = Scripted(lambda index: 0 if index % 500 else 1)
        server = replace(SERVER, extend=0.1, upkeep_window=4)
        run_scenario(policy, replace(HALF, server=server), rounds=4000, **UNBOUND)
        passes = [outcome.round for outcome in policy.outcomes if outcome.upkeep]
        assert passes[:3] == [4, 8, 12]
        guessed = [outcome for outcome in policy.outcomes if outcome.guesses]
        assert [outcome.round for outcome in guessed[:3]] == [5, 9, 13]
        assert {outcome.guesses for outcome in guessed} == {4}
        right = sum(outcome.right_guesses for outcome in guessed)
        assert right / (4 * len(guessed)) == pytest.approx(0.5, abs=0.03)

    def test_without_upkeep_no_round_has_any(self):
        policy = Scripted(lambda index: index % 2)
        run_scenario(policy, HALF, rounds=40, **UNBOUND)
        assert not any(outcome.upkeep or outcome.guesses for outcome in policy.outcomes)

    def test_the_same_seed_gives_the_same_run(self):
        first, again, other = (score(run(lambda _: 3, seed=seed)) for seed in (1, 1, 2))
        assert first == again
        assert first.tokens_per_second != other.tokens_per_second

    def test_policies_meet_the_same_drafts(self):
        deep, shallow = Scripted(lambda _: 3), Scripted(lambda _: 1)
        for policy in (deep, shallow):
            run_scenario(policy, HALF, rounds=50, **UNBOUND)
        for one, other in zip(deep.outcomes, shallow.outcomes, strict=True):
            assert tuple(min(1, right) for right in one.accepted) == other.accepted

    def test_the_guard_is_in_force(self):
        made = run(lambda index: index % 2, min_dwell=10)
        assert made.counters.switches <= 10
        assert score(made).switches == made.counters.switches
