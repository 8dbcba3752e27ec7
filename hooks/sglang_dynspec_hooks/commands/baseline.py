"""
`make baseline`: write down what this package relies on in the installed SGLang.

    python -m sglang_dynspec_hooks.commands.baseline docs/design.md

rewrites `baseline.json` and the table of the seams in the page. It is for developers who have read
what changed in SGLang, and no command of `dynspec`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sglang_dynspec.errors import SeamError
from sglang_dynspec_hooks import seams
from sglang_dynspec_hooks.contract import comparison
from sglang_dynspec_hooks.contract.version import installed_version
from sglang_dynspec_hooks.seams.called import CALLED

if TYPE_CHECKING:
    from sglang_dynspec_hooks.contract.seam import Hook

#: Lines of the page, between which the table stands.
BEGIN: Final = "<!-- The seams: written by `make baseline`. -->\n"
END: Final = "<!-- End of the seams. -->\n"

#: From the page to the seams' files.
_FILES: Final = "../hooks/sglang_dynspec_hooks/seams"


def table() -> str:
    """
    List every seam with its reason, in the order in which a server meets them.

    Returns:
        A Markdown table, and a line on what is called without being hooked.
    """
    launcher = [*seams.idle(), *seams.launcher()]
    rows = [
        "| function of SGLang | kind | process | why it is hooked | it can go when |",
        "|---|---|---|---|---|",
        *(_row(hook, "launcher") for hook in launcher),
        *(_row(hook, "scheduler") for hook in seams.scheduler()),
    ]
    called = (
        f"{len(CALLED)} more functions are called or overridden; "
        f"[called.py]({_FILES}/called.py) lists them with their parameters."
    )
    return "\n".join([*rows, "", called, ""])


def rewritten(page: str, seams_table: str) -> str:
    """
    Put a table in the place of the one that a page holds.

    Args:
        page: The page, with the lines `BEGIN` and `END`.
        seams_table: What `table` returns.

    Returns:
        The page with the table.

    Raises:
        SeamError: When the page has no such place.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SeamError(
            expected=f"a page with the lines {BEGIN.strip()} and {END.strip()}",
            found="neither, or one alone",
            remedy="put both where the table belongs",
        )
    return f"{before}{BEGIN}\n{seams_table}\n{END}{after}"


def main(page: Path) -> None:
    """
    Rewrite the baseline of the installed SGLang version, and the page's table.

    Args:
        page: The page.
    """
    text = rewritten(page.read_text(encoding="utf-8"), table())
    version = installed_version()
    comparison.write_baseline(seams.records(), version)
    page.write_text(text, encoding="utf-8")
    print(f"sglang {version} is the baseline: {comparison.BASELINE}, {page}")  # noqa: T201


def _row(hook: Hook, process: str) -> str:
    seam = hook.seam
    function = ".".join(seam.target.split(".")[-2:])
    file = f"{_FILES}/{hook.handler.__module__.rpartition('.')[2]}.py"
    cells = (f"[`{function}`]({file})", seam.kind.value, process, seam.reason, seam.removal)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
