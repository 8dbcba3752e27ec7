"""What the demo found out: figures by phase, faults, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import typer

from sglang_dynspec.cli.output import depth_name, print_table
from sglang_dynspec.cli.report import phase_table
from sglang_dynspec.trace import Trace, read_trace
from sglang_dynspec.trace.phases import Phase, PhaseRow, phase_rows
from sglang_dynspec.trace.timeline import draw_timeline
from sglang_dynspec_cpu.demo.kinds import KindRow, kind_rows, kind_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.table import Table

    from sglang_dynspec.trace import TraceHeader
    from sglang_dynspec_cpu.demo.load import Ramp


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What the policy expected at the end of a phase."""

    phase: str
    #: Tokens per second by depth; empty before the policy had measured anything.
    rates: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything the demo reports."""

    trace: Trace
    rows: list[PhaseRow]
    #: What the policy expected of each depth at the end of each phase.
    estimates: list[Estimate]
    #: What became of the drafts by kind of prompt; empty where prompts are all of one kind.
    kinds: list[KindRow]
    #: Requests sent, and how many of them were answered as the plain server answered.
    requests: int
    equal: int
    #: The server's own count of changes of depth.
    switches: int
    #: Why the demo did not show what it is there to show; empty on success.
    faults: list[str]
    trace_path: Path
    picture: Path
    out: Path
    seconds: float

    @classmethod
    def of(
        cls, *, ramp: Ramp, state: Mapping[str, Any], trace_path: Path, out: Path, seconds: float
    ) -> Self:
        """
        Summarise a run, and draw its picture.

        Args:
            ramp: The load, with all answers.
            state: The server's account of itself.
            trace_path: The trace of the run.
            out: Where the picture goes.
            seconds: How long the run took.
        """
        trace = read_trace(trace_path)
        phases = [
            Phase(
                name=f"concurrency {phase.concurrency}",
                start=trace.seconds(phase.began),
                end=trace.seconds(phase.ended),
            )
            for phase in ramp.phases
        ]
        picture = out / "timeline.png"
        title = f"dynspec demo: policy {trace.header.policy}, {trace.header.options}"
        draw_timeline(trace, picture, phases=phases, title=title)
        differing = ramp.differing()
        return cls(
            trace=trace,
            rows=phase_rows(trace, phases),
            estimates=[
                _estimate(trace, phase, load.concurrency)
                for phase, load in zip(phases, ramp.phases, strict=True)
            ],
            kinds=kind_rows(ramp),
            requests=len(ramp.requests),
            equal=len(ramp.requests) - len(differing),
            switches=state["switches"],
            faults=_faults(differing, state),
            trace_path=trace_path,
            picture=picture,
            out=out,
            seconds=seconds,
        )

    def as_json(self) -> dict[str, Any]:
        """Give the result as plain JSON types."""
        return {
            "ok": not self.faults,
            "faults": self.faults,
            "requests": self.requests,
            "equal": self.equal,
            "switches": self.switches,
            "phases": [
                row.as_json()
                | {"estimate": {str(depth): rate for depth, rate in estimate.rates.items()}}
                for row, estimate in zip(self.rows, self.estimates, strict=True)
            ],
            **({"kinds": [row.as_json() for row in self.kinds]} if self.kinds else {}),
            "trace": str(self.trace_path),
            "picture": str(self.picture),
            "logs": [str(path) for path in sorted(self.out.glob("*.log"))],
            "seconds": round(self.seconds, 1),
        }


def print_result(result: Result) -> None:
    """Print the table, where the files are, and the verdict."""
    print_table(phase_table(result.trace, result.rows))
    print_table(_estimate_table(result.trace.header, result.estimates))
    if result.kinds:
        print_table(kind_table(result.kinds))
    typer.echo(f"switches   {result.switches}")
    if not result.switches:
        typer.echo(
            "           none: one depth paid best, or nearly, at every concurrency on this CPU"
        )
    typer.echo(f"trace      {result.trace_path}")
    typer.echo(f"picture    {result.picture}")
    typer.echo(f"logs       {result.out}/server.log, {result.out}/plain.log")
    typer.echo(
        "tokens/s   of small models on this CPU, in which the policy found what pays where: no"
    )
    typer.echo("           benchmark, and nothing that could be said of a GPU")
    for fault in result.faults:
        typer.echo(f"FAILED     {fault}")
    if result.equal == result.requests:
        verdict = f"all {result.requests} outputs equal the plain engine's, token by token"
    else:
        verdict = f"only {result.equal} of {result.requests} outputs equal the plain engine's"
    typer.echo(f"outputs    {verdict} ({result.seconds:.0f} s in all)")


def _estimate(trace: Trace, phase: Phase, concurrency: int) -> Estimate:
    """Take the estimate from the phase's last round at full concurrency."""
    rates: dict[int, float] = {}
    for each in trace.rounds:
        within = phase.start <= each.t < phase.end
        if within and each.batch_size == concurrency and each.predicted:
            rates = dict(zip(trace.header.depths, each.predicted, strict=True))
    return Estimate(phase=phase.name, rates=rates)


def _estimate_table(header: TraceHeader, estimates: list[Estimate]) -> Table:
    """Lay out what the policy expected: why it decided as it did."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    depths = header.depths
    table = Table(box=SIMPLE_HEAD, title=f"tokens/s that {header.policy} expects")
    table.add_column("phase")
    for depth in depths:
        table.add_column(depth_name(depth), justify="right")
    for depth in depths[1:]:
        table.add_column(f"depth {depth} / plain", justify="right")
    table.caption = "from what it measured, at the end of each phase"
    for estimate in estimates:
        rates = estimate.rates
        ratios = [f"{rates[depth] / rates[0]:.2f}" if rates else "-" for depth in depths[1:]]
        absolute = [f"{rates[depth]:,.0f}" if rates else "-" for depth in depths]
        table.add_row(estimate.phase, *absolute, *ratios)
    return table


def _faults(differing: list[int], state: Mapping[str, Any]) -> list[str]:
    faults = []
    if differing:
        faults.append(f"{len(differing)} outputs differ, first that of request {differing[0]}")
    rounds = {int(depth): at["rounds"] for depth, at in state["by_depth"].items()}
    plain = rounds.pop(0, 0)
    if not plain:
        faults.append("no plain round ran")
    if not sum(rounds.values()):
        faults.append("no speculative round ran")
    if state["mismatches"]:
        faults.append(f"{state['mismatches']} rounds ran at another depth than planned")
    return faults
