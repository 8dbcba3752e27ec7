"""
Tiers: the pre-built worker state of every depth, and the switch between them.

SGLang sizes its draft, verify and draft-extend resources for one number of draft steps and bundles
them in a ``SpecRuntimeState``. `Tiers` builds one per depth with SGLang's own builder and swaps
them by assigning pointers: no logging, no allocation, nothing that grows with the number of
switches. (SGLang's ``apply_runtime_state`` logs, allocates two tensors and appends to an unbounded
override log on every switch.)
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sglang_dynspec.log import structured
from sglang_dynspec_hooks.worker.build_costs import BuildCosts
from sglang_dynspec_hooks.worker.plain_graphs import capture_plain_graphs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch


logger = structured(None, "sglang_dynspec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """
    Everything that has to change together when the depth changes.

    Attributes:
        depth: Draft steps of the worker in this tier; 0 is the plain tier.
        draft_depth: Draft steps the *draft* worker is prepared for. Equal to ``depth``, except in
            the plain tier, whose draft side is the upkeep tier's so that upkeep needs no switch.
        state: SGLang's bundle of attention backends and graph runners.
        chain_parents: The draft tree of a chain, int64, shape (max batch size, parent count).
        chain_scores: The chain's score indices, int64, shape (max batch size, draft_depth).
    """

    depth: int
    draft_depth: int
    state: Any
    chain_parents: torch.Tensor
    chain_scores: torch.Tensor


class Tiers:
    """
    The worker's tiers, built once at start-up.

    Takes the place of SGLang's ``AdaptiveController``: the worker's ``init_cuda_graphs`` calls
    `register` with the tier it started in, then `init_states`. The callbacks by which SGLang would
    let its own controller decide do nothing, because the plan on the batch decides.
    """

    def __init__(
        self,
        worker: Any,
        *,
        depths: Sequence[int],
        upkeep_depth: int,
        plain_graphs: bool = True,
    ) -> None:
        """
        Describe the tiers; `init_states` builds them.

        Args:
            worker: The speculative worker; its initial depth must be the largest of ``depths``.
            depths: Candidate depths, ascending, beginning with 0.
            upkeep_depth: Depth of the tier that runs upkeep passes (their width is one more).
            plain_graphs: Whether to capture CUDA graphs for plain rounds.
        """
        self._worker = worker
        self._depths = tuple(depths)
        self._upkeep_depth = upkeep_depth
        self._plain_graphs = plain_graphs
        self._tiers: dict[int, Tier] = {}
        #: What building each tier took, by depth, and what upkeep needs, by ``"upkeep"``. The
        #: largest depth's was built by SGLang itself, with its graphs of prefill.
        self.costs = BuildCosts(worker, upkeep_depth=upkeep_depth)
        self.active = max(depths)

    def begin(self) -> None:
        """Note that SGLang begins to build its own tier, which `register` adopts."""
        self.costs.begin()

    def register(self, state: Any) -> None:
        """Adopt the tier that SGLang itself built at start-up, and has in force."""
        depth = state.speculative_num_steps
        self._tiers[depth] = self._tier(depth, depth, state)
        self.costs.note(depth)

    def init_states(self, cuda_graph_bs: list[int] | None = None) -> None:
        """
        Build the speculative tiers that are missing; the largest depth stays in force.

        Args:
            cuda_graph_bs: Batch sizes to capture, or None when CUDA graphs are off.
        """
        wanted = {*self._depths, self._upkeep_depth} - {0}
        for depth in sorted(wanted - self._tiers.keys()):
            with self.costs.account(depth):
                state = self._worker.build_adaptive_runtime_state(
                    speculative_num_steps=depth,
                    speculative_num_draft_tokens=depth + 1,
                    cuda_graph_bs=cuda_graph_bs,
                )
                self._tiers[depth] = self._tier(depth, depth, state)

    def build_plain(self) -> None:
        """
        Build the plain tier, after the others.

        Apart from `init_states`, which SGLang calls inside the draft model's parallel and MoE
        contexts: plain rounds belong to the target alone.
        """
        with self.costs.account(0):
            self._tiers[0] = self._plain_tier(self._tiers[self._upkeep_depth])

    def build_upkeep(self, upkeep: Any) -> None:
        """Build what upkeep passes need, for the batch sizes of the plain tier's graphs."""
        with self.costs.account("upkeep"):
            upkeep.build(self.plain_graph_sizes)

    @property
    def plain_graph_sizes(self) -> tuple[int, ...]:
        """Batch sizes that plain rounds have CUDA graphs for, ascending; empty without."""
        graphs = self._tiers[0].state.target_graph_runner
        return () if graphs is None else tuple(sorted(graphs.capture_bs))

    def keep_graphs(self) -> None:
        """
        Keep every tier's graphs when weights are updated in place, whatever the update asks for.

        SGLang would recapture one graph, of the tier that happens to be in force and at the width
        of another, and leave it where a plain round finds it. The weights keep their addresses, so
        the graphs stay right; SGLang itself recaptures only on request.
        """
        worker = self._worker
        for runner in (worker.target_worker.model_runner, worker.draft_worker.draft_runner):
            runner.weight_updater = replace(
                runner.weight_updater, recapture_cuda_graph=_keep_graphs
            )

    def activate(self, depth: int) -> None:
        """
        Put the tier of ``depth`` in force.

        Raises:
            KeyError: ``depth`` has no tier.
        """
        tier = self._tiers[depth]
        if depth == self.active:
            return
        state = tier.state
        worker = self._worker
        worker.speculative_num_steps = depth
        worker.speculative_num_draft_tokens = depth + 1

        draft = worker.draft_worker
        draft.speculative_num_steps = tier.draft_depth
        draft.speculative_num_draft_tokens = tier.draft_depth + 1
        draft.draft_attn_backend = state.draft_attn_backend
        draft.draft_runner.draft_attn_backend = state.draft_attn_backend
        draft.cuda_graph_runner = state.cuda_graph_runner
        draft.draft_extend_attn_backend = state.draft_extend_attn_backend
        if state.draft_extend_attn_backend is not None:
            draft.draft_runner.attn_backend = state.draft_extend_attn_backend
        draft.cuda_graph_runner_for_draft_extend = state.cuda_graph_runner_for_draft_extend
        draft._topk1_parents_prealloc = tier.chain_parents
        draft._topk1_score_indices_prealloc = tier.chain_scores

        target = worker.target_worker.model_runner
        target.attn_backend = state.target_attn_backend
        target.decode_cuda_graph_runner = state.target_graph_runner
        self.active = depth

    @contextmanager
    def borrowed(self, depth: int) -> Iterator[None]:
        """Put the tier of ``depth`` in force for a moment, then the one that was."""
        before = self.active
        self.activate(depth)
        try:
            yield
        finally:
            self.activate(before)

    # SGLang's controller interface; the plan on the batch has already decided.

    def activate_step_by_batch(self, batch_size: int) -> None:
        """Do nothing: the tier of the plan is in force before SGLang asks."""

    def on_verify_complete(self, num_correct_drafts_per_req: list[int], batch_size: int) -> None:
        """Do nothing: outcomes reach the policy tagged with the depth that ran."""

    def _plain_tier(self, upkeep: Tier) -> Tier:
        from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState

        runner = self._worker.target_worker.model_runner
        # The attribute is a construction-time side channel that SGLang's own tier builder restores.
        saved = runner.init_new_workspace
        target_attn_backend = runner._get_attention_backend(init_new_workspace=True)
        runner.init_new_workspace = saved
        graphs = None
        if self._plain_graphs:
            graphs = capture_plain_graphs(
                runner,
                target_attn_backend,
                draft_reads_hidden=not self._worker.speculative_algorithm.is_standalone(),
            )
        state = SpecRuntimeState(
            speculative_num_steps=0,
            speculative_num_draft_tokens=1,
            draft_attn_backend=upkeep.state.draft_attn_backend,
            cuda_graph_runner=None,
            target_attn_backend=target_attn_backend,
            # A verify graph cannot replay a plain round.
            target_graph_runner=graphs,
            draft_extend_attn_backend=upkeep.state.draft_extend_attn_backend,
            cuda_graph_runner_for_draft_extend=upkeep.state.cuda_graph_runner_for_draft_extend,
        )
        return Tier(
            depth=0,
            draft_depth=upkeep.depth,
            state=state,
            chain_parents=upkeep.chain_parents,
            chain_scores=upkeep.chain_scores,
        )

    def _tier(self, depth: int, draft_depth: int, state: Any) -> Tier:
        """Bundle ``state`` with the chain constants that SGLang rebuilds at every switch."""
        draft = self._worker.draft_worker
        saved = (
            draft.speculative_num_steps,
            draft.speculative_num_draft_tokens,
            draft._topk1_parents_prealloc,
            draft._topk1_score_indices_prealloc,
        )
        draft.speculative_num_steps = draft_depth
        draft.speculative_num_draft_tokens = draft_depth + 1
        draft._rebuild_topk1_chain_buffers()
        tier = Tier(
            depth=depth,
            draft_depth=draft_depth,
            state=state,
            chain_parents=draft._topk1_parents_prealloc,
            chain_scores=draft._topk1_score_indices_prealloc,
        )
        (
            draft.speculative_num_steps,
            draft.speculative_num_draft_tokens,
            draft._topk1_parents_prealloc,
            draft._topk1_score_indices_prealloc,
        ) = saved
        return tier


def _keep_graphs() -> None:
    logger.warning(
        "recapture_ignored",
        note="the CUDA graphs of every depth stay, and read the new weights",
    )
