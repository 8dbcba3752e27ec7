"""`dynspec doctor`: would SGLang load us here, and does every seam fit?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sglang_dynspec.cli.output import AsJson, print_json
from sglang_dynspec_hooks.commands import _diagnosis
from sglang_dynspec_hooks.contract.comparison import Verdict

if TYPE_CHECKING:
    from sglang_dynspec_hooks.commands._diagnosis import Check


def command(
    *,
    as_json: AsJson = False,
) -> None:
    """
    Check that SGLang would load this package, and that every seam fits the installed SGLang.

    One line a check, beginning with ok, warn or FAIL. Imports nothing of SGLang. The exit status
    is 1 when any check failed, else 0.
    """
    checks = _diagnosis.diagnose()
    failed = sum(check.verdict is Verdict.BROKEN for check in checks)
    if as_json:
        print_json(_document(checks, failed))
    else:
        for check in checks:
            typer.echo(f"{check.verdict.value:<4} {check.subject}: {check.text}")
        typer.echo(f"{len(checks)} checks, {failed} failed")
    if failed:
        raise typer.Exit(1)


def _document(checks: list[Check], failed: int) -> dict[str, object]:
    return {
        "failed": failed,
        "checks": [
            {"verdict": check.verdict.value, "subject": check.subject, "text": check.text}
            for check in checks
        ],
    }
