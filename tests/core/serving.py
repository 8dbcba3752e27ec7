"""A server in service small enough to reckon by hand."""

from dataclasses import replace

from sglang_dynspec.simulator.drafts import geometric
from sglang_dynspec.simulator.service import Load, Requests, World
from sglang_dynspec.simulator.service.load import held
from tests.core.by_hand import SERVER

#: Four clients whose prompts are of 10 tokens and whose answers of 8. A prefill takes half a second
#: and a hundredth for each token, a plain round a second, one of depth 1 1.25 and of depth 3 1.75.
#: Drafts are right at 0.5.
WORLD = World(
    name="by hand",
    kind="by hand",
    summary="",
    server=SERVER,
    requests=Requests(kinds=geometric(0.5).kinds, prompt=(10, 10), output=(8, 8, 8), spread=0.0),
    load=Load(clients=held(4)),
    seconds=100.0,
    reentry=0.0,
    stale=1.0,
    prefill=(0.5, 0.01),
    noise=0.0,
    outliers=0.0,
)


def world(**fields):
    return replace(WORLD, **fields)


def requests(**fields):
    return replace(WORLD.requests, **fields)
