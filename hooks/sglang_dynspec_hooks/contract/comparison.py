"""
Compare what this package relies on with the installed SGLang.

Three gates. The version, in `version`. The shape: a function that is missing or has other
parameters stops the start-up, always. The body: a function whose text differs from the one in
`baseline.json` is a warning here and a failure in this project's own tests, which is where
someone reads the difference and decides, and `make baseline` records it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sglang_dynspec_hooks.contract import source as sglang_source
from sglang_dynspec_hooks.contract.seam import Called, Seam

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BASELINE: Final = Path(__file__).with_name("baseline.json")

logger = logging.getLogger("sglang_dynspec")

Record = Seam | Called


class Verdict(Enum):
    """How a function of SGLang compares with its record."""

    FITS = "ok"
    #: Same shape, other body, or no body on record for this version.
    CHANGED = "warn"
    #: Missing, or other parameters.
    BROKEN = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The comparison of one record."""

    record: Record
    verdict: Verdict
    expected: str
    found: str


def examine(
    records: Iterable[Record],
    version: str,
    *,
    root: Path | None = None,
    baseline: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Finding]:
    """
    Compare records with SGLang's source files; nothing of SGLang is imported.

    Args:
        records: What is relied on.
        version: SGLang's version, which selects the bodies to compare with.
        root: Where the package `sglang` is; found when not given.
        baseline: Version -> target -> digest; read from `baseline.json` when not given.

    Returns:
        One finding for each record, in order.
    """
    if baseline is None:
        baseline = read_baseline()
    digests = baseline.get(version, {})
    try:
        root = root or sglang_source.package_root()
    except sglang_source.MissingError as error:
        missing = str(error)
        return [_broken(record, missing) for record in records]
    return [_examine_one(record, root, digests) for record in records]


def require(records: Iterable[Record], version: str) -> None:
    """
    Stop on the first function that is missing or has other parameters than recorded.

    Args:
        records: What is relied on.
        version: SGLang's version.

    Raises:
        SeamError: Naming the function, its recorded shape and the one that was found.
    """
    changed = []
    for finding in examine(records, version):
        if finding.verdict is Verdict.BROKEN:
            from sglang_dynspec.errors import SeamError

            raise SeamError(
                expected=finding.expected,
                found=f"{finding.found} in sglang {version}",
                remedy="install a supported SGLang version; `dynspec doctor` lists every seam",
            )
        if finding.verdict is Verdict.CHANGED:
            changed.append(finding.record.target)
    if changed:
        logger.warning("seam_bodies_changed sglang=%s targets=%s", version, ",".join(changed))


def read_baseline() -> dict[str, dict[str, str]]:
    """
    Read the bodies that this version of the package was written against.

    Returns:
        SGLang version -> target -> SHA-256 of the function's text.
    """
    baseline: dict[str, dict[str, str]] = json.loads(BASELINE.read_text(encoding="utf-8"))
    return baseline


def write_baseline(records: Iterable[Record], version: str) -> None:
    """
    Record the bodies of the installed SGLang as those we were written against.

    Args:
        records: What is relied on.
        version: SGLang's version; the baselines of other versions are kept.

    Raises:
        MissingError: When a target does not exist.
    """
    root = sglang_source.package_root()
    baseline = read_baseline() if BASELINE.exists() else {}
    baseline[version] = {
        record.target: sglang_source.find_function(record.target, root).digest
        for record in sorted(records, key=lambda record: record.target)
    }
    BASELINE.write_text(json.dumps(baseline, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _examine_one(record: Record, root: Path, digests: Mapping[str, str]) -> Finding:
    try:
        function = sglang_source.find_function(record.target, root)
    except sglang_source.MissingError as error:
        return _broken(record, str(error))
    if function.parameters != record.parameters:
        return _broken(record, _signature(record.target, function.parameters))
    is_known = function.digest == digests.get(record.target)
    return Finding(
        record=record,
        verdict=Verdict.FITS if is_known else Verdict.CHANGED,
        expected=_signature(record.target, record.parameters),
        found="the recorded body" if is_known else f"another body, {function.file}:{function.line}",
    )


def _broken(record: Record, found: str) -> Finding:
    return Finding(
        record=record,
        verdict=Verdict.BROKEN,
        expected=_signature(record.target, record.parameters),
        found=found,
    )


def _signature(target: str, parameters: tuple[str, ...]) -> str:
    return f"{target}({', '.join(parameters)})"
