"""
Pictures of a replay.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sglang_dynspec.replay.suite_run import shares_by_scenario
from sglang_dynspec.simulator import ScenarioRun
from sglang_dynspec.simulator.scoring import true_rates
from sglang_dynspec.trace.figure import empty_figure

#: Shares below this are drawn in the darkest colour.
_DARKEST = 0.5

#: Shares below this are written in white.
_DARK = 0.75


def draw_run(run: ScenarioRun, path: Path, *, title: str) -> None:
    """
    Draw batch size, depth and the oracle's depth over time, as a PNG.

    Args:
        run: The run.

        path: The file to write.

        title: Title of the picture.

    Raises:
        ConfigError: There is no matplotlib.

        OSError: The file cannot be written.
    """
    depths = run.scenario.depths
    ends = np.cumsum(run.periods)
    oracle = np.array(depths)[true_rates(run).argmax(axis=0)]
    figure = empty_figure(10, 5)
    sizes, chosen = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    sizes.step(ends, run.batch_sizes, where="pre", color="tab:blue")
    sizes.set_ylabel("batch size (requests)")
    sizes.set_ylim(0, 1.1 * run.batch_sizes.max())
    sizes.set_title(title, parse_math=False)
    chosen.step(ends, oracle, where="pre", color="tab:green", linewidth=4, alpha=0.35)
    chosen.step(ends, run.depths, where="pre", color="tab:red", linewidth=0.9)
    probes = run.probes
    chosen.plot(ends[probes], run.depths[probes], "x", color="black", markersize=4)
    chosen.legend(["oracle", "policy", "probes"], loc="upper right", fontsize="small")
    chosen.set_yticks(depths, ["plain" if depth == 0 else str(depth) for depth in depths])
    chosen.set_ylabel("depth (draft steps)")
    chosen.set_xlabel("simulated seconds")
    for axes in (sizes, chosen):
        axes.grid(visible=True, alpha=0.3)
        axes.axvspan(0.0, ends[run.scenario.warm_up - 1], color="grey", alpha=0.15)
        for transition in run.scenario.transitions:
            axes.axvline(ends[transition.at], color="black", linewidth=0.8, linestyle=":")
    figure.align_ylabels()
    figure.savefig(path)


def draw_shares(document: Mapping[str, Any], path: Path) -> None:
    """
    Draw every entry's share of the oracle in every scenario as a map of colours, as a PNG.

    Args:
        document: What `sglang_dynspec.replay.replay` gave.

        path: The file to write.

    Raises:
        ConfigError: There is no matplotlib.

        OSError: The file cannot be written.
    """
    entries = [entry["name"] for entry in document["entries"]]
    names = [scenario["name"] for scenario in document["scenarios"]]
    columns = [shares_by_scenario(document["results"], entry) for entry in entries]
    shares = np.array([[column[name] for column in columns] for name in names])
    height = 1.5 + 0.24 * len(names)
    figure = empty_figure(2.5 + 0.8 * len(entries), height)
    axes = figure.subplots()
    image = axes.imshow(shares, vmin=_DARKEST, vmax=1.0, cmap="viridis", aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        color = "white" if share < _DARK else "black"
        axes.text(column, row, f"{share:.1%}", color=color, ha="center", va="center", fontsize=6)
    axes.set_xticks(range(len(entries)), entries, rotation=30, ha="right", fontsize="small")
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.set_title("share of the oracle's tokens", fontsize="medium")
    figure.colorbar(image, ax=axes, shrink=0.6)
    figure.savefig(path)
