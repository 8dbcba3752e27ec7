"""
Comparing the outputs of two engines.
"""

from collections.abc import Sequence
from itertools import zip_longest

#: Token ids shown on each side of a difference.
_CONTEXT = 5


def assert_lossless(
    plain_outputs: Sequence[Sequence[int]], dynspec_outputs: Sequence[Sequence[int]]
) -> None:
    """
    Assert that two engines produced the same token ids.

    Args:
        plain_outputs: Token ids of each request, from an engine that does not speculate.

        dynspec_outputs: The same requests, in the same order, from the engine under test.

    Raises:
        AssertionError: They differ; the message names the first request and position that do.
    """
    __tracebackhide__ = True
    if len(plain_outputs) != len(dynspec_outputs):
        raise AssertionError(
            f"{len(plain_outputs)} plain outputs, {len(dynspec_outputs)} dynspec outputs"
        )
    differing = [
        index
        for index, (plain, dynspec) in enumerate(zip(plain_outputs, dynspec_outputs, strict=True))
        if list(plain) != list(dynspec)
    ]
    if not differing:
        return
    request = differing[0]
    plain, dynspec = list(plain_outputs[request]), list(dynspec_outputs[request])
    position = next(index for index, (a, b) in enumerate(zip_longest(plain, dynspec)) if a != b)
    raise AssertionError(
        f"outputs differ in {len(differing)} of {len(plain_outputs)} requests; first in request "
        f"{request} at position {position}\n"
        f"  plain:   {_around(plain, position)}\n"
        f"  dynspec: {_around(dynspec, position)}"
    )


def _around(tokens: list[int], position: int) -> str:
    start = max(position - _CONTEXT, 0)
    end = position + _CONTEXT + 1
    before = ["..."] if start else []
    after = ["..."] if end < len(tokens) else []
    shown = " ".join([*before, *map(str, tokens[start:end]), *after])
    return f"{shown} ({len(tokens)} tokens)"
