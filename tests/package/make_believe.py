"""
A server that is not there, for commands that talk to one over HTTP.
"""

import json
from typing import Any

import httpx

#: Seconds of a round by depth, and of an upkeep pass, in the make-believe server.
SECONDS = {0: 0.010, 1: 0.013, 3: 0.019}
PASS = 0.002


class MakeBelieve:
    """
    Answers as a server with this plugin does, and takes account of rounds that never ran.
    """

    def __init__(self) -> None:
        self.forced: int | None = None
        self.forcings: list[int] = []
        self.running = 0
        self.others = 0
        self.capacity = 100_000
        self.timed: dict[tuple[int, int], dict[str, float]] = {}
        self.by_depth = {str(k): {"requests": 0, "tokens": 0} for k in SECONDS}
        self.tokens = 0
        #: Sizes that batches are padded to; none, as without CUDA graphs.
        self.graph_sizes: tuple[int, ...] = ()
        self.interrupt: BaseException | None = None
        self.answers: dict[str, httpx.Response] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path in self.answers:
            return self.answers[path]
        if path == "/server_info":
            return httpx.Response(200, json={"internal_states": [self.state()]})
        body = json.loads(request.content)
        if path == "/set_internal_state":
            depth = body["server_args"]["dynspec_force_depth"]
            self.forced = None if depth < 0 else depth
            self.forcings.append(depth)
            return httpx.Response(200, json=[True])
        if self.interrupt is not None and len(self.forcings) > 5:
            raise self.interrupt
        self.serve(len(body["input_ids"]), body["sampling_params"]["max_new_tokens"])
        return httpx.Response(200, json=[])

    def serve(self, size: int, tokens: int) -> None:
        depth = self.forced or 0
        advance = 1 + depth / 2
        rounds = int((tokens - 1) / advance)
        passes = rounds // 4 if depth == 0 else 0
        row = self.timed.setdefault(
            (depth, min((each for each in self.graph_sizes if each >= size), default=size)),
            dict.fromkeys(
                ("rounds", "seconds", "seq_len_sum", "upkeep_rounds", "upkeep_seconds"), 0
            ),
        )
        row["rounds"] += rounds - passes
        row["seconds"] += (rounds - passes) * SECONDS[depth] * size
        row["seq_len_sum"] += (rounds - passes) * 100 * size
        row["upkeep_rounds"] += passes
        row["upkeep_seconds"] += passes * (SECONDS[depth] * size + PASS)
        self.by_depth[str(depth)]["requests"] += rounds * size
        self.by_depth[str(depth)]["tokens"] += int(rounds * size * advance)
        self.tokens += size * (tokens - 1) + self.others

    def state(self) -> dict[str, Any]:
        return {
            "effective_max_running_requests_per_dp": 6,
            "memory_usage": {"token_capacity": self.capacity},
            "dynspec": {
                "forced": self.forced,
                "running": self.running,
                "waiting": 0,
                "identity": {"gpu": "NVIDIA H200", "model": "/m", "tensor_parallel": 1},
                "by_depth": {depth: dict(totals) for depth, totals in self.by_depth.items()},
                "tokens": self.tokens,
                "timed": [
                    {"depth": depth, "padded_batch_size": size, **row}
                    for (depth, size), row in self.timed.items()
                ],
            },
        }
