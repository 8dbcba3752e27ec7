"""
The bridge between one SGLang scheduler and the core's round loop.

Follows one decode round: `mark` observes the batch and writes on it what was planned (before the
launch), the worker reads the depth with `planned_depth` and lets `stamp` pass the mark on to the
result, `settle` turns the processed result into an outcome. Translation only: every decision is the
core's, and the draft model is the worker's.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sglang_dynspec.identity import Identity
from sglang_dynspec.loading.plugins import load_policy, plugin_manager
from sglang_dynspec.log import structured
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec_hooks import carried_config
from sglang_dynspec_hooks.bridge.exactness import count_plain_requests
from sglang_dynspec_hooks.bridge.periods import Periods, is_ready
from sglang_dynspec_hooks.bridge.tracing import open_trace
from sglang_dynspec_hooks.identity import gpu_name, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_dynspec.config import ResolvedConfig
    from sglang_dynspec_hooks.bridge.protocols import Worker

#: Prefix of the request ids that SGLang's health check generates with.
_HEALTH_CHECK = "HEALTH_CHECK"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a decode batch, and then its result, is marked with: all that is known of the round."""

    observation: Observation
    plan: Plan
    #: Committed lengths of the batch's requests, in tokens.
    lengths: list[int]
    #: Upkeep's count of prefills at its launch.
    prefills: int


class Bridge:
    """
    Joins the scheduler, the worker and `Rounds`.

    Attributes:
        config: The configuration.
        rounds: The core's round loop.
    """

    def __init__(
        self,
        *,
        config: ResolvedConfig,
        rounds: Rounds,
        worker: Worker,
        identity: Identity | None = None,
    ) -> None:
        """
        Join the three.

        Args:
            config: The configuration.
            rounds: The core's round loop.
            worker: The dynspec worker. Its attributes are read when there are rounds.
            identity: What the server is, for its account.
        """
        self.config = config
        self.rounds = rounds
        self._worker = worker
        self._identity = identity or Identity()
        #: Known from the first launch on.
        self._scheduler: Any = None
        self._periods = Periods()
        self._log = structured(None, "sglang_dynspec")

    @classmethod
    def from_server_args(cls, server_args: Any, *, worker: Worker) -> Bridge:
        """
        Build the bridge in the scheduler process from the configuration that the launcher resolved.

        Raises:
            ConfigError: The policy cannot be loaded here (the launcher checked it already).
        """
        from sglang.srt.arg_groups.overrides import resolving_view

        config = carried_config.config_of(server_args)
        # What SGLang decided itself, such as the attention backend, stands beside the arguments.
        view = resolving_view(server_args)
        limits = Limits(
            depths=config.depths,
            max_running_requests=view.max_running_requests,
            seed=config.seed,
            identity=identity_of(view, gpu=gpu_name()),
        )
        rounds = Rounds(
            policy=load_policy(config, limits),
            config=config,
            trace=open_trace(config, view),
            hooks=plugin_manager(),
        )
        return cls(config=config, rounds=rounds, worker=worker, identity=limits.identity)

    # --- observe -> decide -> plan

    def mark(self, scheduler: Any, batch: Any) -> None:
        """
        Observe a batch about to be launched and write on it what was planned.

        Never raises: a fault makes the round plain and is counted.
        """
        self._scheduler = scheduler
        self._periods.launching()
        if not batch.forward_mode.is_decode():
            return
        try:
            lengths = [req.kv.kv_committed_len for req in batch.reqs]
            observation = self._observe(scheduler, batch, lengths)
            plan = self.rounds.plan(observation)
            prefills = self._worker.upkeep.prefills
            batch.dynspec_mark = Mark(observation, plan, lengths, prefills)
        except Exception:  # noqa: BLE001 - a batch that cannot be observed can still be decoded
            self.rounds.counters.note(
                "mark_faults",
                self._log.error,
                "batch_not_observed",
                exc_info=True,
                note="its round is plain; later ones are only counted",
            )

    def planned_depth(self, batch: Any) -> int:
        """Depth that the batch was marked with; 0 when it was not."""
        mark = getattr(batch, "dynspec_mark", None)
        if mark is None:
            self.rounds.counters.unmarked += 1
            return 0
        return int(mark.plan.depth)

    def stamp(self, batch: Any, result: Any) -> None:
        """
        Move the batch's mark to the result.

        The batch itself moves on before its result is processed, and lives through many rounds.
        """
        mark = getattr(batch, "dynspec_mark", None)
        if mark is not None:
            result.dynspec_mark = mark
            result.dynspec_launch = self._periods.launched()
            batch.dynspec_mark = None

    def _observe(self, scheduler: Any, batch: Any, lengths: list[int]) -> Observation:
        size = len(lengths)
        sizes = self._worker.graph_sizes
        place = bisect_left(sizes, size)
        rounds = self.rounds
        allocator = scheduler.token_to_kv_pool_allocator
        return Observation(
            round=rounds.round,
            batch_size=size,
            padded_batch_size=sizes[place] if place < len(sizes) else size,
            running=len(scheduler.running_batch.reqs),
            waiting=len(scheduler.waiting_queue),
            seq_len_sum=sum(lengths),
            seq_len_max=max(lengths),
            kv_free=allocator.available_size() / scheduler.max_total_num_tokens,
            depths=self.config.depths,
            depth=rounds.depth,
            depth_age=rounds.depth_age,
            plain_requests=count_plain_requests(batch),
            upkeep_window=self._worker.upkeep.window,
        )

    # --- outcome -> learn

    def settle(self, batch: Any, result: Any, process: Callable[[], None]) -> None:
        """
        Process the result of a decode round and give its outcome to the core.

        Under overlap a request that finished or was retracted reappears for one overshoot round, so
        the live requests are noted first; health checks count for nothing.

        Args:
            batch: The batch, or the copy of it that the overlap loop kept.
            result: Its result.
            process: SGLang's own processing of the result.
        """
        live = [
            (row, req, len(req.output_ids))
            for row, req in enumerate(batch.reqs)
            if not (req.finished() or req.is_retracted)
        ]
        overshot = len(live) < len(batch.reqs)
        mark = getattr(result, "dynspec_mark", None)
        ready = is_ready(result)
        process()
        upkeep = self._worker.upkeep
        finished = [row for row, req, _ in live if req.finished()]
        if finished:
            upkeep.release(self._scheduler, batch, finished)
        if overshot:
            # What this round noted of requests that were gone when it ran, such as at prefill.
            slots_cpu = batch.req_pool_indices_cpu.numpy()
            gone = np.delete(slots_cpu, [row for row, _, _ in live])
            # Unmarked, it is a round of which nothing is known.
            upkeep.forget_gone(gone, upkeep.prefills if mark is None else mark.prefills)
        if mark is None:
            return
        counted = [entry for entry in live if not entry[1].rid.startswith(_HEALTH_CHECK)]
        if not counted:
            return
        observation, plan = mark.observation, mark.plan
        depth = result.speculative_num_draft_tokens - 1
        accepted = result.num_correct_drafts_per_req_cpu
        # Copied to the host before the result was.
        guesses, right = getattr(result, "dynspec_guesses", (0, 0))
        self.rounds.learn(
            observation,
            plan,
            Outcome(
                round=observation.round,
                depth=depth,
                planned=plan.depth,
                batch_size=len(counted),
                accepted=tuple(accepted[row] for row, _, _ in counted) if depth else (),
                tokens=sum(_delivered(req) - before for _, req, before in counted),
                period=self._periods.settled(
                    self._scheduler, batch, launch=result.dynspec_launch, ready=ready
                ),
                padded_batch_size=observation.padded_batch_size,
                seq_len_sum=observation.seq_len_sum,
                seq_lens=tuple(mark.lengths[row] for row, _, _ in counted),
                upkeep=getattr(result, "dynspec_upkeep", False),
                guesses=guesses,
                right_guesses=int(right),
            ),
        )

    # --- account

    def state(self, scheduler: Any) -> dict[str, Any]:
        """What ``/server_info`` shows of us; plain JSON types."""
        return {
            **self.rounds.summary(),
            "identity": self._identity.model_dump(),
            "running": len(scheduler.running_batch.reqs),
            "waiting": len(scheduler.waiting_queue),
            "upkeep": self._worker.upkeep.summary(),
            "built": self._worker.build_costs(),
            "graph_sizes": list(self._worker.graph_sizes),
            "overlap": bool(scheduler.enable_overlap),
            "kv_free_tokens": int(scheduler.token_to_kv_pool_allocator.available_size()),
            "kv_evictable_tokens": int(scheduler.tree_cache.evictable_size()),
        }


def _delivered(req: Any) -> int:
    """Tokens of a request that its client gets: a stop may cut the newest run short."""
    return len(req.output_ids) if req.finished_len is None else int(req.finished_len)
