"""
A scripted policy that also looks into the scheduler process it runs in.

Test-only: counts calls of the code that a plain round must never reach, saves what the draft model
starts from at re-entry, and on a GPU makes our own code fail where it waits for the device. The
tests read the counts through the file named by ``report``.
"""

import functools
import json
from pathlib import Path
from typing import Any

from sglang_dynspec_cpu.scripted import Scripted

#: What plain rounds must not call, by the name the report uses.
COUNTED = {
    "verify": "sglang.srt.speculative.eagle_worker_common.run_eagle_verify",
    "build_tree": "sglang.srt.speculative.eagle_utils.build_tree_kernel_efficient",
    "sample": "sglang.srt.speculative.eagle_utils.eagle_sample",
    "draft": "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker.draft",
    "draft_forward": "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker.draft_forward",
    "draft_extend": (
        "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker._draft_extend_for_decode"
    ),
}


def functions_of_a_round() -> tuple[list[tuple[type, str]], list[tuple[type, str]]]:
    """What this package runs in a round, and what SGLang runs inside that."""
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker

    from sglang_dynspec_hooks.bridge.bridge import Bridge
    from sglang_dynspec_hooks.worker.tiers import Tiers
    from sglang_dynspec_hooks.worker.upkeep import Upkeep
    from sglang_dynspec_hooks.worker.worker import DynspecWorkerMixin

    ours: list[tuple[type, str]] = [
        (Bridge, "mark"),
        (Bridge, "stamp"),
        (Upkeep, "release"),
        (DynspecWorkerMixin, "_plain_round"),
        (Tiers, "activate"),
        (Upkeep, "before_speculative_round"),
    ]
    sglangs: list[tuple[type, str]] = [
        (ModelRunner, "forward"),
        (ModelRunner, "sample"),
        (EagleDraftWorker, "_draft_extend_for_decode"),
    ]
    return ours, sglangs


class Probed(Scripted):
    """Plays a script, counts calls and, when ``dump`` names a directory, saves re-entries."""

    def __init__(
        self,
        *,
        path: str,
        seed: int = 0,
        report: str,
        dump: str = "",
        synchronizing: str = "",
    ) -> None:
        super().__init__(path=path, seed=seed)
        self._synchronizing = synchronizing
        self._report = Path(report)
        self._dump = Path(dump) if dump else None
        self._calls: dict[str, int] | None = None
        self._depth_before = 0

    def decide(self, observation: Any) -> Any:
        if self._calls is None:
            self._calls = dict.fromkeys(COUNTED, 0)
            self._install()
        self._depth_before = observation.depth
        return super().decide(observation)

    def learn(self, outcome: Any) -> None:
        super().learn(outcome)
        scratch = self._report.with_suffix(".new")
        scratch.write_text(json.dumps(self._calls))
        scratch.replace(self._report)

    def _install(self) -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        for name, target in COUNTED.items():
            HookRegistry.register(target, self._counter(name), HookType.BEFORE)
        HookRegistry.apply_hooks()
        self._steer_prefills()
        if self._synchronizing:
            self._forbid_synchronizing()

    def _steer_prefills(self) -> None:
        """
        Run the draft's part of prefills as the file ``prefill`` says.

        ``whole`` as SGLang does, ``unwritten`` without its keys and values, else as we do.
        """
        from sglang_dynspec_hooks.worker.kv_write import KvWriter
        from sglang_dynspec_hooks.worker.prefill import PlainPrefill

        file = self._report.with_name("prefill")
        write, run = KvWriter.write_rows, PlainPrefill.run

        def wanted() -> str:
            return file.read_text() if file.exists() else ""

        def steered(*args: Any) -> Any:
            return None if wanted() == "whole" else run(*args)

        def written(*args: Any) -> None:
            if wanted() != "unwritten":
                write(*args)

        PlainPrefill.run = steered
        KvWriter.write_rows = written

    def _forbid_synchronizing(self) -> None:
        """Let torch raise where the code that this package adds to a round waits for the device."""
        import torch

        def within(function: Any, mode: str) -> Any:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                self._calls["guarded"] += mode != "default"
                before = torch.cuda.get_sync_debug_mode()
                torch.cuda.set_sync_debug_mode(mode)
                try:
                    return function(*args, **kwargs)
                finally:
                    torch.cuda.set_sync_debug_mode(before)

            return call

        self._calls |= {"guarded": 0, "noticed": 0}
        ours, sglangs = functions_of_a_round()
        for functions, mode in ((ours, self._synchronizing), (sglangs, "default")):
            for owner, name in functions:
                setattr(owner, name, within(getattr(owner, name), mode))
        try:
            within(torch.Tensor.item, self._synchronizing)(torch.ones(1, device="cuda"))
        except RuntimeError:
            self._calls["noticed"] += 1

    def _counter(self, name: str) -> Any:
        def count(*args: Any, **_kwargs: Any) -> None:
            self._calls[name] += 1
            if name == "draft" and self._dump is not None and self._depth_before == 0:
                self._save(*args)

        return count

    def _save(self, draft_worker: Any, batch: Any) -> None:
        """Save what the first speculative round after plain ones starts from."""
        import torch

        runner = draft_worker.draft_runner
        pool = runner.token_to_kv_pool
        table = draft_worker.req_to_token_pool.req_to_token
        layers = range(pool.start_layer, pool.start_layer + pool.layer_num)
        requests = {}
        for row, req in enumerate(batch.reqs):
            locations = table[int(batch.req_pool_indices[row]), : int(batch.seq_lens[row])].long()
            hidden = batch.spec_info.hidden_states
            requests[req.rid] = {
                "length": int(batch.seq_lens[row]),
                "topk_index": batch.spec_info.topk_index[row].clone(),
                "hidden": None if hidden is None else hidden[row].clone(),
                "keys": torch.stack([pool.get_key_buffer(i)[locations] for i in layers]),
                "values": torch.stack([pool.get_value_buffer(i)[locations] for i in layers]),
            }
        number = len(list(self._dump.glob("*.pt")))
        torch.save(requests, self._dump / f"{number:04d}.pt")
