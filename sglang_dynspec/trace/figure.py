"""
Empty figures, where there is matplotlib: the extra [report] brings it.
"""

from typing import TYPE_CHECKING

from sglang_dynspec.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_matplotlib() -> None:
    """
    Check, before a long run, that pictures can be drawn after it.

    Raises:
        ConfigError: There is no matplotlib.
    """
    try:
        # Here, because it takes half a second to import and only pictures need it.
        import matplotlib.figure  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigError(
            expected="matplotlib, which draws pictures",
            found=str(error),
            remedy="pip install 'sglang-dynspec[report]', or do without the picture",
        ) from error


def empty_figure(width: float, height: float) -> "Figure":
    """
    Make a figure to draw into.

    Args:
        width: In inches.

        height: In inches.

    Returns:
        The figure, which `Figure.savefig` writes as a PNG.

    Raises:
        ConfigError: There is no matplotlib.
    """
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure(figsize=(width, height), dpi=120, layout="constrained")
