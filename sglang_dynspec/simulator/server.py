"""
What a round costs on a synthetic server: a roofline with a knee.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Batch sizes SGLang 0.5.23 captures CUDA graphs for; a batch runs at the next one up.
GRAPH_SIZES: Final = (1, 2, 4, 8, 12, 16, *range(24, 257, 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticServer:
    """
    A server whose rounds take a time that a formula gives.

    One pass of the target model over n tokens, with S tokens of context in the KV cache, takes

        (memory(n)^sharpness + (compute n)^sharpness)^(1 / sharpness) + link n + context S

    where memory(n) = weights + experts (1 - (1 - routed)^n). A dense model is memory-bound up to
    the knee where compute n passes memory and compute-bound above it (the roofline of Williams et
    al., 2009, with the corner rounded). A mixture of experts reads more experts the more tokens it
    sees, so that verifying costs more than decoding at small batches already. Tensor parallelism
    over a slow link pays for every token.

    A plain round of B requests is one such pass over B tokens. A round of depth k verifies
    B (k + 1) tokens, drafts k times and extends the draft model's KV by what was verified, but
    takes `floor` seconds at least: so long the host needs to launch it. An upkeep pass extends the
    draft model's KV by a window of tokens.

    Attributes:
        name: What to call it.

        weights: Seconds to read the weights once, launches included.

        experts: Seconds to read all experts of a mixture of experts.

        routed: Share of the experts that one token is routed to, 0.0 to 1.0.

        compute: Seconds of arithmetic for each token.

        sharpness: How sharp the corner of the roofline is; larger is sharper.

        link: Seconds for each token on the interconnect.

        context: Seconds for each token of context.

        draft: Seconds for each draft step.

        draft_token: Seconds for each request in each draft step.

        extend: Seconds for each draft-extend pass.

        extend_token: Seconds for each token of a draft-extend pass.

        overhead: Seconds a speculative round takes besides.

        floor: Seconds a speculative round takes at least.

        upkeep_window: Plain rounds between two upkeep passes; 0 for none.

        graph_sizes: Batch sizes that rounds are padded to, ascending; a larger batch is not padded.
    """

    name: str
    weights: float
    experts: float = 0.0
    routed: float = 0.0
    compute: float
    sharpness: float = 2.7
    link: float = 0.0
    context: float = 0.0
    draft: float
    draft_token: float = 0.0
    extend: float
    extend_token: float = 0.0
    overhead: float = 0.0
    floor: float = 0.0
    upkeep_window: int = 4
    graph_sizes: tuple[int, ...] = GRAPH_SIZES

    def padded(self, batch_size: int) -> int:
        """
        Pad a batch size to the next CUDA graph's.
        """
        sizes = self.graph_sizes
        index = bisect_left(sizes, batch_size)
        return sizes[index] if index < len(sizes) else batch_size

    def seconds(self, depth: int, padded_batch_size: int, seq_len_sum: int) -> float:
        """
        Give the time of a round without noise, upkeep and re-entry.

        Args:
            depth: Its depth.

            padded_batch_size: The batch size it runs at.

            seq_len_sum: Tokens of context of its requests.

        Returns:
            Seconds.
        """
        seconds = self.seconds_without_context(depth, padded_batch_size)
        seconds += self.context * seq_len_sum
        return max(self.floor, seconds) if depth else seconds

    def seconds_without_context(self, depth: int, padded_batch_size: int) -> float:
        """
        Give the part of a round's time that does not depend on context, whatever the host needs.

        Args:
            depth: Its depth.

            padded_batch_size: The batch size it runs at.

        Returns:
            Seconds.
        """
        batch = padded_batch_size
        tokens = batch * (depth + 1)
        memory = self.weights + self.experts * (1.0 - (1.0 - self.routed) ** tokens)
        knee = self.sharpness
        target: float = (memory**knee + (self.compute * tokens) ** knee) ** (1.0 / knee)
        target += self.link * tokens
        if not depth:
            return target
        drafting = depth * (self.draft + self.draft_token * batch)
        extending = self.extend + self.extend_token * tokens
        return target + drafting + extending + self.overhead

    def upkeep_seconds(self, padded_batch_size: int) -> float:
        """
        Give the time of one upkeep pass.

        Args:
            padded_batch_size: The batch size it runs at.

        Returns:
            Seconds; 0.0 without upkeep.
        """
        if not self.upkeep_window:
            return 0.0
        return self.extend + self.extend_token * padded_batch_size * self.upkeep_window

    def mean_seconds(
        self,
        depth: int,
        padded_batch_sizes: NDArray[np.int64],
        seq_len_sums: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """
        Give the time of rounds in the long run: a plain one with its share of upkeep.

        Args:
            depth: Their depth.

            padded_batch_sizes: The batch sizes they run at; shape (rounds,).

            seq_len_sums: Tokens of context of their requests; shape (rounds,).

        Returns:
            Seconds; shape (rounds,).
        """
        sizes, at = np.unique(padded_batch_sizes, return_inverse=True)
        seconds: NDArray[np.float64] = np.array(
            [self.seconds_without_context(depth, size) for size in sizes.tolist()]
        )[at]
        seconds = seconds + self.context * seq_len_sums
        if depth:
            return np.maximum(self.floor, seconds)
        if not self.upkeep_window:
            return seconds
        passes = np.array([self.upkeep_seconds(size) for size in sizes.tolist()])
        return seconds + passes[at] / self.upkeep_window


_MS: Final = 1e-3

#: One H200, a model of 8B parameters and an EAGLE3 head, bf16. Fitted by least squares of relative
#: errors to decode tokens/s of SGLang 0.5.23 at mean accepted lengths of 1.6 (depths 1 and 3) and
#: 2.6 (depth 3), 128-token prompts and 256 output tokens. Fitted against measured, in percent, at
#: batch sizes 1, 8, 32, 64, 128, 256:
#:
#:     plain           -1.3  +1.2  +0.7  +1.3  +0.4  -1.3
#:     depth 1 at 1.6  -0.3  +0.9  -5.9  -0.8  +2.1  -1.2
#:     depth 3 at 1.6  -1.4  +2.3  -3.2  -0.7  +0.9  -4.6
#:     depth 3 at 2.6  -1.3  +2.3  +0.1  +1.8  +1.1  +2.6
#:
#: One cell misses 5 %: depth 1 at batch 32, which was measured to be faster than at batch 8. An
#: upkeep pass is fitted to what plain rounds cost with a window of 4 beside those with none (2.1 to
#: 3.3 %).
H200_8B: Final = SyntheticServer(
    name="h200-8b",
    weights=4.786 * _MS,
    compute=0.02217 * _MS,
    context=6.8e-5 * _MS,
    draft=0.201 * _MS,
    draft_token=0.001453 * _MS,
    extend=0.4 * _MS,
    extend_token=0.00105 * _MS,
    floor=5.817 * _MS,
)

#: Eight GPUs on PCIe, a mixture of experts of 1T parameters (8 of 384 experts a token) and an
#: EAGLE3 head: every token crosses the slow link. Fitted to 92.6, 457.2, 784.2, 772.1 tokens/s
#: plain and 77.5, 239.6, 337.7, 340.9 at depth 3, at concurrencies 1, 10, 70, 250. The accepted
#: length was not recorded, 2.0 is assumed; a speculative server of SGLang runs 48 requests at most
#: unless told otherwise, and so is taken to have run 48 of the 70 and the 250. How a speculative
#: round's time splits into drafting and the rest is assumed as well. Fitted against measured, in
#: percent: +0.5  0.0  -5.5  +5.2 plain, -1.9  +7.3  -2.0  -3.0 at depth 3.
PCIE_1T: Final = SyntheticServer(
    name="pcie-1t",
    weights=9.506 * _MS,
    experts=2.935 * _MS,
    routed=8 / 384,
    compute=0.01 * _MS,
    link=1.181 * _MS,
    draft=2.47 * _MS,
    draft_token=0.238 * _MS,
    extend=0.6 * _MS,
    extend_token=0.03 * _MS,
    overhead=3.0 * _MS,
)

#: Eight GPUs on NVLink, a mixture of experts of 235B parameters (8 of 128 experts a token). Not
#: fitted: one token reads 6 % of the experts, 16 tokens 64 %, so that speculation gains less at
#: small batches than a dense model's, and most where all experts are read anyway.
NVLINK_MOE: Final = SyntheticServer(
    name="nvlink-moe",
    weights=3.5 * _MS,
    experts=9.0 * _MS,
    routed=8 / 128,
    compute=0.02 * _MS,
    link=0.004 * _MS,
    context=4.0e-5 * _MS,
    draft=0.35 * _MS,
    draft_token=0.002 * _MS,
    extend=0.5 * _MS,
    extend_token=0.0015 * _MS,
    floor=5.0 * _MS,
)

#: A GPU with little arithmetic for its memory: the knee lies near 24 tokens. Not fitted.
SMALL_GPU: Final = SyntheticServer(
    name="small-gpu",
    weights=14.0 * _MS,
    compute=0.6 * _MS,
    context=3.0e-4 * _MS,
    draft=0.9 * _MS,
    draft_token=0.02 * _MS,
    extend=1.2 * _MS,
    extend_token=0.03 * _MS,
)

#: The servers above, by name.
SERVERS: Final = {server.name: server for server in (H200_8B, PCIE_1T, NVLINK_MOE, SMALL_GPU)}
