"""
The bridge between one SGLang scheduler and the core's round loop.

Follows one decode round: `mark` observes the batch and writes the plan on it (before the launch),
the worker reads the plan with `planned_depth` and stamps what ran on the result, `settle` turns the
processed result into an outcome. Translation only: every decision is the core's.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from sglang_dynspec.loading.plugins import load_policy, plugin_manager
from sglang_dynspec.observation import Observation, Outcome
from sglang_dynspec.policy import Limits
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec_hooks import carried_config
from sglang_dynspec_hooks.bridge.exactness import count_plain_requests
from sglang_dynspec_hooks.bridge.periods import Periods, is_ready
from sglang_dynspec_hooks.bridge.tracing import open_trace
from sglang_dynspec_hooks.identity import gpu_name, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sglang_dynspec.config import Config

logger = logging.getLogger("sglang_dynspec")

#: Prefix of the request ids that SGLang's health check generates with.
_HEALTH_CHECK = "HEALTH_CHECK"


class Bridge:
    """
    Joins the scheduler, the worker and `Rounds`.

    Attributes:
        depths: Candidate depths, ascending, beginning with 0.
        upkeep_window: The configured window.
        plain_graphs: Whether plain rounds get CUDA graphs.
        rounds: The core's round loop.
        unmarked: Decode batches that reached the worker without a plan; they ran plain.
        upkeep_faults: Faults of upkeep so far.
        graph_sizes: Batch sizes with a CUDA graph, ascending; empty without.
    """

    def __init__(self, *, config: Config, rounds: Rounds, worker: Any) -> None:
        """
        Join the three.

        Args:
            config: The resolved configuration.
            rounds: The core's round loop.
            worker: The dynspec worker.
        """
        assert config.depths is not None  # noqa: S101 - resolved configurations have them
        assert config.upkeep_window is not None  # noqa: S101
        self.depths = config.depths
        self.upkeep_window = config.upkeep_window
        self.plain_graphs = config.plain_graphs
        self.rounds = rounds
        self.unmarked = 0
        self.upkeep_faults = 0
        self.mark_faults = 0
        self.graph_sizes: tuple[int, ...] = ()
        self._worker = worker
        self._scheduler: Any | None = None
        self._periods = Periods()

    @classmethod
    def from_server_args(cls, server_args: Any, *, worker: Any) -> Bridge:
        """
        Build the bridge in the scheduler process from the configuration that the launcher resolved.

        Raises:
            ConfigError: The policy cannot be loaded here (the launcher checked it already).
        """
        config = carried_config.config_of(server_args)
        assert config.depths is not None  # noqa: S101
        limits = Limits(
            depths=config.depths,
            max_running_requests=server_args.max_running_requests,
            seed=config.seed,
            identity=identity_of(server_args, gpu=gpu_name()),
        )
        policy = load_policy(config, limits)
        rounds = Rounds(
            policy=policy,
            config=config,
            depths=config.depths,
            trace=open_trace(config, server_args),
            hooks=plugin_manager(),
            log=logger,
        )
        return cls(config=config, rounds=rounds, worker=worker)

    # --- observe -> decide -> plan

    def mark(self, scheduler: Any, batch: Any) -> None:
        """
        Observe a batch about to be launched and write the plan on it.

        Never raises: a fault makes the round plain and is counted.
        """
        self._scheduler = scheduler
        self._periods.launching()
        if not batch.forward_mode.is_decode():
            return
        try:
            lengths = [req.kv.kv_committed_len for req in batch.reqs]
            observation = self._observe(scheduler, batch, lengths)
            batch.dynspec_observed = observation, lengths
            batch.dynspec_plan = self.rounds.plan(observation)
        except Exception:
            batch.dynspec_plan = None
            self.mark_faults += 1
            if self.mark_faults == 1:
                logger.exception(
                    "dynspec: observing a batch failed and its round runs plain. "
                    "Said once; counted in the server's internal state."
                )

    def planned_depth(self, batch: Any) -> int:
        """Depth that the batch was marked with; 0 when it was not."""
        plan = getattr(batch, "dynspec_plan", None)
        if plan is None:
            self.unmarked += 1
            return 0
        return int(plan.depth)

    def stamp(self, batch: Any, result: Any) -> None:
        """
        Let the result say which round it is of and what was planned for it.

        The batch itself moves on before its result is processed, and lives through many rounds.
        """
        plan = getattr(batch, "dynspec_plan", None)
        if plan is not None:
            result.dynspec_observed = batch.dynspec_observed
            result.dynspec_planned = plan.depth
            result.dynspec_launch = self._periods.launched()
            batch.dynspec_plan = None

    def _observe(self, scheduler: Any, batch: Any, lengths: list[int]) -> Observation:
        size = len(lengths)
        sizes = self.graph_sizes
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
            seq_len_max=max(lengths, default=0),
            kv_free=allocator.available_size() / max(scheduler.max_total_num_tokens, 1),
            depths=self.depths,
            depth=rounds.depth,
            depth_age=rounds.depth_age,
            plain_requests=count_plain_requests(batch),
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
        observed = getattr(result, "dynspec_observed", None)
        live = [
            (row, req, len(req.output_ids))
            for row, req in enumerate(batch.reqs)
            if not (req.finished() or req.is_retracted)
        ]
        overshot = len(live) < len(batch.reqs)
        ready = is_ready(result)
        process()
        finished = [row for row, req, _ in live if req.finished()]
        if finished:
            self._release(batch, finished)
        if overshot:
            self._forget_all_but(batch, [row for row, _, _ in live])
        if observed is None:
            return
        observation, lengths = observed
        counted = [entry for entry in live if not entry[1].rid.startswith(_HEALTH_CHECK)]
        if not counted:
            self.rounds.discard(observation.round)
            return
        depth = result.speculative_num_draft_tokens - 1
        accepted = result.num_correct_drafts_per_req_cpu
        # Copied to the host before the result was.
        guesses, right = getattr(result, "dynspec_guesses", (0, 0))
        self.rounds.learn(
            Outcome(
                round=observation.round,
                depth=depth,
                planned=result.dynspec_planned,
                batch_size=len(counted),
                accepted=tuple(accepted[row] for row, _, _ in counted) if depth else (),
                tokens=sum(_delivered(req) - before for _, req, before in counted),
                period=self._periods.settled(
                    self._scheduler, batch, launch=result.dynspec_launch, ready=ready
                ),
                padded_batch_size=observation.padded_batch_size,
                seq_len_sum=observation.seq_len_sum,
                seq_lens=tuple(lengths[row] for row, _, _ in counted),
                upkeep=getattr(result, "dynspec_upkeep", False),
                guesses=guesses,
                right_guesses=int(right),
            )
        )

    def _release(self, batch: Any, finished: list[int]) -> None:
        """Keep the draft rows of finished requests whole for the radix cache."""
        upkeep, scheduler = self._worker.upkeep, self._scheduler
        lacking = upkeep.lacking(batch, finished)
        if lacking and scheduler is not None and not scheduler.disable_radix_cache:
            try:
                with on_forward_stream(scheduler):
                    upkeep.after_finish(batch, lacking)
            except Exception as error:  # noqa: BLE001 - a cold draft costs speed, never an output
                self._worker.give_up_upkeep(error)
        upkeep.forget(batch.req_pool_indices_cpu.numpy()[finished])

    def _forget_all_but(self, batch: Any, live: list[int]) -> None:
        """Drop what the overshoot round noted of requests that were gone, such as at prefill."""
        self._worker.upkeep.forget(np.delete(batch.req_pool_indices_cpu.numpy(), live))

    # --- account

    def state(self, scheduler: Any) -> dict[str, Any]:
        """What ``/server_info`` shows of us; plain JSON types."""
        upkeep = self._worker.upkeep
        return {
            **self.rounds.summary(),
            "identity": identity_of(scheduler.server_args, gpu=gpu_name()).model_dump(),
            "running": len(scheduler.running_batch.reqs),
            "waiting": len(scheduler.waiting_queue),
            "unmarked": self.unmarked,
            "mark_faults": self.mark_faults,
            "upkeep": {
                "window": upkeep.window,
                "passes": dict(upkeep.passes),
                "writes": upkeep.writes,
                "pending": upkeep.ledger.pending(),
                "gaps": upkeep.ledger.gaps,
                "faults": self.upkeep_faults,
            },
            "built": self._worker.adaptive_controller.costs.as_json(),
            "graph_sizes": list(self.graph_sizes),
            "overlap": bool(scheduler.enable_overlap),
            "kv_free": int(scheduler.token_to_kv_pool_allocator.available_size()),
            "kv_evictable": int(scheduler.tree_cache.evictable_size()),
        }


def _delivered(req: Any) -> int:
    """Tokens of a request that its client gets: a stop may cut the newest run short."""
    if req.finished() and req.finished_len is not None:
        return int(req.finished_len)
    return len(req.output_ids)


@contextlib.contextmanager
def on_forward_stream(scheduler: Any) -> Iterator[None]:
    """
    Run on the stream of the forwards, in order with what the scheduler's own stream does.

    Without overlap both are one stream. With it, the scheduler's later writes to the request table
    wait for the work inside, on the device; the host does not wait.
    """
    if not scheduler.enable_overlap:
        yield
        return
    with scheduler.forward_stream_ctx:
        scheduler.forward_stream.wait_stream(scheduler.schedule_stream)
        yield
    scheduler.schedule_stream.wait_stream(scheduler.forward_stream)
