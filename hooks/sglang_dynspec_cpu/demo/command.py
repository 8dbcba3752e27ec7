"""`dynspec demo`: a real server on the CPU that measures, and switches as its load changes."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sglang_dynspec.cli.output import AsJson, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_dynspec_cpu.demo.load import Ramp
    from sglang_dynspec_cpu.demo.result import Result
    from sglang_dynspec_cpu.demo.steps import Steps
    from sglang_dynspec_cpu.server import CpuServer

#: With these models no two best logits of the demo's answers are closer than 8e-4, while the batch
#: size moves them by 2e-5: a near tie that fell the other way would look like a fault.
_SEED: Final = 1
#: Plain and the largest depth. Those in between lose less where speculation does not pay: too
#: little to tell them from plain in a minute, on a machine that may have other work.
_DEPTHS: Final = (0, 5)
#: Share of the tokens that probes may cost. The default pays for a look at a large batch once in
#: thousands of rounds; the demo has hundreds.
_EXPLORATION: Final = 0.1
#: Seconds the servers may take to start: 35 on two idle cores.
_PATIENCE: Final = 300.0
#: Seconds between two looks at servers that are starting, and at the trace.
_POLL: Final = 0.5
#: Seconds the last rounds may take to reach the trace's file; it is written once a second.
_TRACE_DELAY: Final = 20.0
#: Seconds the servers may take to end by themselves.
_FAREWELL: Final = 5.0


def command(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where trace, picture and logs go.")
    ] = Path("out/demo"),
    port: Annotated[
        int | None, typer.Option(help="Port of the server on 127.0.0.1. Default: a free one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """
    Serve small models on the CPU, and watch the server switch as its load rises and falls.

    Starts `sglang serve` with this plugin and the policy `goodput`, raises the concurrency of its
    chat endpoint from 1 to 48 and lowers it again, and compares every answer with that of a server
    without speculation. It shows that the policy measures what rounds cost and deliver, speculates
    where that pays on this CPU with these models, decodes plainly where it does not, and changes no
    token. It says nothing about a GPU.

    The exit status is 0 when all answers are equal and both plain and speculative rounds ran.
    """
    from sglang_dynspec.trace.figure import require_matplotlib
    from sglang_dynspec_cpu.demo.result import print_result
    from sglang_dynspec_cpu.demo.steps import Steps
    from sglang_dynspec_hooks.commands.signals import terminable

    require_matplotlib()
    with terminable():
        result = _run(Steps(), out.resolve(), port)
    if as_json:
        print_json(result.as_json())
    else:
        print_result(result)
    if result.faults:
        raise typer.Exit(1)


def _run(steps: Steps, out: Path, port: int | None) -> Result:
    """Run the demo and leave its files in a directory."""
    from sglang_dynspec_cpu.demo.load import Ramp
    from sglang_dynspec_cpu.demo.result import Result
    from sglang_dynspec_cpu.models import shallow_pair

    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    trace = out / "trace.jsonl"
    # What an earlier run left must not be taken for this one's.
    for path in (trace, *out.glob("*.log")):
        path.unlink(missing_ok=True)
    with steps.step("build a target and a draft model"):
        # To verify a few tokens at once takes a CPU little longer than to decode one, as both read
        # the same weights; to verify hundreds takes their arithmetic. So it depends on the batch
        # size whether such a draft pays.
        models = shallow_pair(out / "models", seed=_SEED)
    ramp = Ramp()
    dynamic, plain = _servers(out, models, ramp, trace, port)
    steps.say(f"$ {' '.join(dynamic.command)}  # in an environment that gives SGLang a CPU engine")
    with ExitStack() as stack, _explained(dynamic, plain):
        stack.enter_context(dynamic)
        stack.enter_context(plain)
        with steps.step("start it, and a plain server to compare with") as tell:
            _wait(dynamic, plain, tell)
        with steps.step("warm both up"):
            ramp.warm_up(dynamic.url)
            ramp.warm_up(plain.url)
        _drive(steps, ramp, dynamic, plain)
        state = _account(dynamic)
        with steps.step("stop both servers"):
            plain.terminate()
            _await_trace(trace, state["rounds"])
            dynamic.terminate()
            plain.stop(_FAREWELL)
            dynamic.stop(_FAREWELL)
    return Result.of(
        ramp=ramp, state=state, trace_path=trace, out=out, seconds=time.monotonic() - began
    )


def _servers(
    out: Path, models: Any, ramp: Ramp, trace: Path, port: int | None
) -> tuple[CpuServer, CpuServer]:
    """Describe the server with this plugin, and one without speculation."""
    from sglang_dynspec_cpu.environment import engine_args
    from sglang_dynspec_cpu.server import CpuServer

    # Two servers on a small machine: neither may poll its queues while it has nothing to do.
    common = {
        "served_model_name": "tiny",
        "max_running_requests": ramp.concurrency,
        "sleep_on_idle": True,
        "log_level": "info",
    }
    algorithm = "STANDALONE"
    speculative = engine_args(
        models.target,
        algorithm=algorithm,
        draft_path=models.draft(algorithm),
        depth=max(_DEPTHS),
        # A CPU has done a round's work when it has launched it: there is nothing to overlap.
        overlap=False,
    )
    flags = [
        *("--enable-plugin", "dynspec"),
        *("--dynspec-policy", "goodput"),
        *("--dynspec-option", f"depths={json.dumps(_DEPTHS)}"),
        *("--dynspec-option", f"exploration={_EXPLORATION}"),
        *("--dynspec-option", f"exploration_budget={_EXPLORATION}"),
        *("--dynspec-trace", str(trace)),
    ]
    return (
        CpuServer(speculative | common, flags=flags, log=out / "server.log", port=port),
        CpuServer(engine_args(models.target) | common, log=out / "plain.log"),
    )


def _wait(dynamic: CpuServer, plain: CpuServer, tell: Any) -> None:
    """Wait until both servers answer."""
    from sglang_dynspec_cpu.answers import EngineDiedError

    waiting = {"dynspec": dynamic, "plain": plain}
    deadline = time.monotonic() + _PATIENCE
    while waiting:
        if time.monotonic() > deadline:
            raise EngineDiedError(
                f"expected servers that answer after {_PATIENCE:.0f} s; found "
                f"{' and '.join(waiting)} starting; try again on a less busy machine"
            )
        for name, server in list(waiting.items()):
            if server.is_serving():
                del waiting[name]
        tell(f"waiting for {' and '.join(waiting)}" if waiting else "both answer")
        time.sleep(_POLL)


def _drive(steps: Steps, ramp: Ramp, dynamic: CpuServer, plain: CpuServer) -> None:
    """Put the load on the server with this plugin, then the same requests on the plain one."""
    for number, phase in enumerate(ramp.phases, start=1):
        title = f"phase {number} of {len(ramp.phases)}: concurrency {phase.concurrency}"
        with steps.step(title) as tell:
            phase.drive(dynamic.url, tell)
    with steps.step("the same requests to the plain server") as tell:
        ramp.drive_plain(plain.url, tell)


def _account(dynamic: CpuServer) -> dict[str, Any]:
    """Ask the server what it did."""
    from sglang_dynspec_hooks.client import Client

    with Client(dynamic.url) as client:
        account: dict[str, Any] = client.info()["dynspec"]
    return account


def _await_trace(trace: Path, rounds: int) -> None:
    """Wait until a trace holds its header and every round."""
    deadline = time.monotonic() + _TRACE_DELAY
    while (found := trace.read_bytes().count(b"\n") - 1) < rounds:
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"expected {rounds} rounds in {trace}; found {found}; read the server's log"
            )
        time.sleep(_POLL)


@contextmanager
def _explained(*servers: CpuServer) -> Iterator[None]:
    """Add the end of the servers' logs to whatever goes wrong while they run."""
    try:
        yield
    except Exception as error:
        for server in [server for server in servers if server.has_ended] or servers:
            if tail := server.tail():
                typer.echo(f"--- the end of {server.log}\n{tail}", err=True)
        typer.echo(f"the demo failed: {type(error).__name__}: {error}", err=True)
        raise typer.Exit(1) from error
