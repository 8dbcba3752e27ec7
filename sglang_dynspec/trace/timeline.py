"""
A picture of a trace: batch size and depth over time.
"""

from collections.abc import Sequence
from pathlib import Path

from sglang_dynspec.trace.figure import empty_figure
from sglang_dynspec.trace.format import Trace
from sglang_dynspec.trace.phases import Phase


def draw_timeline(
    trace: Trace, path: Path, *, phases: Sequence[Phase] = (), title: str | None = None
) -> None:
    """
    Draw batch size and depth over time, as a PNG.

    Args:
        trace: The trace.

        path: The file to write.

        phases: Phases to mark.

        title: Title of the picture; by default the policy and the models.

    Raises:
        ConfigError: There is no matplotlib.

        OSError: The file cannot be written.
    """
    # A round's time is when it ended, so its value holds up to there: steps are drawn "pre".
    times = [each.t for each in trace.rounds]
    batch_sizes = [each.batch_size for each in trace.rounds]
    ran = [each.depth for each in trace.rounds]
    figure = empty_figure(10, 5)
    sizes, depths = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    sizes.step(times, batch_sizes, where="pre", color="tab:blue")
    sizes.set_ylabel("batch size (requests)")
    # Room above the line for the names of phases.
    sizes.set_ylim(0, 1.2 * max(batch_sizes, default=1))
    # As it is: "$" is no formula in the name of a model.
    sizes.set_title(title if title is not None else _title(trace), parse_math=False)
    depths.step(times, ran, where="pre", color="tab:red")
    depths.fill_between(times, ran, step="pre", color="tab:red", alpha=0.2)
    probes = [each for each in trace.rounds if each.probe]
    if probes:
        at = [each.t for each in probes], [each.depth for each in probes]
        depths.plot(*at, "x", color="black", markersize=4, label="probes")
        depths.legend(loc="upper right", fontsize="small")
    candidates = trace.header.depths or tuple(sorted(set(ran)))
    depths.set_yticks(candidates, ["plain" if k == 0 else str(k) for k in candidates])
    depths.set_ylabel("depth (draft steps)")
    depths.set_xlabel("seconds since the start of the trace")
    for axes in (sizes, depths):
        axes.grid(visible=True, alpha=0.3)
        for phase in phases:
            axes.axvline(phase.start, color="black", linewidth=0.8, linestyle=":")
    for phase in phases:
        sizes.annotate(
            phase.name,
            (phase.start, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            verticalalignment="top",
            fontsize="small",
        )
    sizes.locator_params(axis="y", integer=True)
    figure.align_ylabels()
    figure.savefig(path)


def _title(trace: Trace) -> str:
    header = trace.header
    named = [header.policy, header.algorithm, Path(header.model).name]
    return "Batch size and depth: " + ", ".join(name for name in named if name)
