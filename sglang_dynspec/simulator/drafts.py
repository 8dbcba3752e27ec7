"""
How good a synthetic draft model is: true acceptance, by kind of request and position.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """
    A kind of request.

    Attributes:
        share: Share of requests that are of this kind, 0.0 to 1.0.

        positions: Probability that the draft at each position, from the first, is right given that
            those before it were. The last holds for deeper positions.
    """

    share: float = 1.0
    positions: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftQuality:
    """
    True acceptance of a synthetic draft model.

    In a round whose level is v, 0.0 to 1.0, the draft at position j is right with probability
    v a_j given that those before it were, where a_j is that of its request's kind. A request whose
    context passes `long_context` tokens has `long_level` a_j in place of a_j.

    Attributes:
        kinds: The kinds of requests; their shares add up to 1.

        long_context: Tokens of context from which drafts are worse, or None for no such length.

        long_level: By what factor.

        alike: Whether all requests of a round draw the same number, so that they are right and
            wrong together: as answers to one prompt are, or under SGLang's SGLANG_SIMULATE_ACC_LEN.
    """

    kinds: tuple[Kind, ...]
    long_context: int | None = None
    long_level: float = 1.0
    alike: bool = False

    def survival(self, deepest: int) -> NDArray[np.float64]:
        """
        Tabulate how likely drafts survive up to each position, at level 1.

        Args:
            deepest: The deepest position.

        Returns:
            Shape (2 x kinds, deepest): for each kind with short context, then for each with long
            context, the probability that the drafts up to each position are all right.
        """
        rows = [
            [kind.positions[min(at, len(kind.positions) - 1)] for at in range(deepest)]
            for kind in self.kinds
        ]
        short = np.array(rows, dtype=np.float64)
        return np.cumprod(np.concatenate([short, short * self.long_level]), axis=1)


def geometric(acceptance: float, decay: float = 1.0) -> DraftQuality:
    """
    Describe drafts of one kind whose acceptance shrinks by a factor from position to position.

    Args:
        acceptance: Probability that the first draft is right.

        decay: Factor from each position to the next; 1.0 for the same acceptance everywhere.

    Returns:
        The description, 16 positions deep.
    """
    return DraftQuality(
        kinds=(Kind(positions=tuple(acceptance * decay**position for position in range(16))),)
    )


#: Acceptance of 0.6 at the first position and less further on: a usual EAGLE3 head.
CHAT: Final = geometric(0.6, 0.95)

#: A head that was trained on the traffic it meets.
GOOD: Final = geometric(0.85, 0.98)

#: Drafts of text that all but repeats its context.
DEEP: Final = geometric(0.95)

#: A mean accepted length of 2.0 at depth 3.
HALF: Final = geometric(0.544)

#: A head that meets a language it knows little of.
FAIR: Final = geometric(0.4, 0.95)

#: A head that was trained on something else.
POOR: Final = geometric(0.25, 0.9)

#: Code, which drafts well, and conversation, which does not.
MIXED: Final = DraftQuality(
    kinds=(
        Kind(share=0.4, positions=(0.9, 0.88, 0.86)),
        Kind(share=0.6, positions=(0.35, 0.3, 0.25)),
    )
)

#: A head that was trained on windows of 4096 tokens and is lost beyond.
SHORT_SIGHTED: Final = replace(CHAT, long_context=4096, long_level=0.25)

#: Answers to one prompt: what is right for one request is right for all.
ALIKE: Final = DraftQuality(kinds=(Kind(positions=(0.95, 0.6, 0.1)),), alike=True)
