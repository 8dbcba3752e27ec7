"""
The scenarios in which nothing changes but by chance.
"""

from typing import Any, Final

from sglang_dynspec.simulator.drafts import ALIKE, CHAT, DEEP, FAIR, GOOD, HALF, MIXED, POOR
from sglang_dynspec.simulator.load import steady
from sglang_dynspec.simulator.scenario import MakePath, Scenario
from sglang_dynspec.simulator.server import H200_8B, NVLINK_MOE, PCIE_1T, SMALL_GPU

#: Largest depth 7, as SGLang's adaptive option tries at small batches.
DEEPER: Final = (0, 1, 3, 5, 7)


def constant(batch_size: int) -> MakePath:
    """
    Make a load that holds one batch size.

    Args:
        batch_size: The batch size.

    Returns:
        The load.
    """
    return lambda rounds, rng: steady(batch_size, rounds)  # noqa: ARG005


def _fixed(name: str, summary: str, **fields: Any) -> Scenario:
    """
    Describe a scenario whose load and acceptance stay as they are.
    """
    batch_size = int(name.rsplit("-", 1)[-1])
    return Scenario(
        name=name, summary=summary, load=constant(batch_size), stationary=True, **fields
    )


def steady_scenarios() -> tuple[Scenario, ...]:
    """
    Describe them.

    Returns:
        The scenarios, by server.
    """
    h200, moe, small, pcie = H200_8B, NVLINK_MOE, SMALL_GPU, PCIE_1T
    return (
        _fixed("h200-chat-1", "one request", server=h200, drafts=CHAT, expected=3),
        _fixed("h200-chat-32", "memory-bound", server=h200, drafts=CHAT, expected=3),
        _fixed("h200-chat-64", "depths 1 and 3 tie", server=h200, drafts=CHAT),
        _fixed("h200-chat-128", "past the knee", server=h200, drafts=CHAT, expected=1),
        _fixed("h200-chat-256", "depth 1 gains 5 %", server=h200, drafts=CHAT, expected=1),
        _fixed("h200-fair-256", "depth 1 loses 8 %", server=h200, drafts=FAIR, expected=0),
        _fixed("h200-poor-8", "depth 3 gains 10 %", server=h200, drafts=POOR, expected=3),
        _fixed("h200-poor-128", "depth 1 loses 5 %", server=h200, drafts=POOR, expected=0),
        _fixed("h200-mixed-32", "code beside chat", server=h200, drafts=MIXED, expected=3),
        _fixed(
            "h200-deep-8",
            "deep drafts that are right",
            server=h200,
            drafts=DEEP,
            depths=DEEPER,
            expected=7,
        ),
        _fixed(
            "h200-long-16",
            "16k tokens of context each",
            server=h200,
            drafts=CHAT,
            prompt=16384,
            output=1024,
            expected=3,
        ),
        _fixed(
            "h200-prefills-96",
            "every second round follows a prefill",
            server=h200,
            drafts=CHAT,
            prefills=0.5,
            expected=1,
        ),
        _fixed(
            "h200-noisy-128",
            "a tenth of noise, many outliers",
            server=h200,
            drafts=CHAT,
            noise=0.1,
            outliers=0.02,
            expected=1,
        ),
        Scenario(
            name="alike",
            summary="128 answers to one prompt: right and wrong together",
            server=h200,
            drafts=ALIKE,
            load=constant(128),
            stationary=True,
            expected=1,
        ),
        _fixed("moe-chat-4", "drafts cost experts", server=moe, drafts=CHAT, expected=1),
        _fixed("moe-fair-4", "depth 1 loses 1 %", server=moe, drafts=FAIR, expected=0),
        _fixed("moe-poor-4", "off at a small batch", server=moe, drafts=POOR, expected=0),
        _fixed("moe-chat-64", "all experts are read", server=moe, drafts=CHAT, expected=3),
        _fixed("small-chat-4", "below the knee", server=small, drafts=CHAT, expected=3),
        _fixed("small-good-16", "at the knee", server=small, drafts=GOOD, expected=1),
        _fixed("small-chat-48", "above the knee", server=small, drafts=CHAT, expected=0),
        _fixed("pcie-1", "one request", server=pcie, drafts=HALF, expected=0),
        _fixed("pcie-10", "the link is the bound", server=pcie, drafts=HALF, expected=0),
        _fixed("pcie-64", "and more so", server=pcie, drafts=HALF, expected=0),
    )
