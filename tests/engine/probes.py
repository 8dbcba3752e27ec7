"""
A scripted policy that also looks into the scheduler process it runs in.

Test-only: counts calls of the code that a plain round must never reach, and saves what the draft
model starts from at re-entry. The tests read both through the file named by ``report``.
"""

import json
from pathlib import Path
from typing import Any

from sglang_dynspec_hooks.cpu.scripted import Scripted

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


class Probed(Scripted):
    """Plays a script, counts calls and, when ``dump`` names a directory, saves re-entries."""

    def __init__(self, *, path: str, seed: int = 0, report: str, dump: str = "") -> None:
        super().__init__(path=path, seed=seed)
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
