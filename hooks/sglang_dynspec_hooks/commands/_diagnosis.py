"""The checks of `dynspec doctor`. They repeat what SGLang does to load plugins, without it."""

from __future__ import annotations

import ast
import functools
import os
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sglang_dynspec_hooks import entry, process
from sglang_dynspec_hooks.contract import comparison
from sglang_dynspec_hooks.contract import version as sglang_version
from sglang_dynspec_hooks.contract.comparison import Verdict
from sglang_dynspec_hooks.contract.seam import GROUP, PLUGIN, Seam
from sglang_dynspec_hooks.process import DISTRIBUTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sglang_dynspec.loading.infos import PolicyInfo

#: SGLang's entry-point group of hardware platforms.
_PLATFORMS: Final = "sglang.srt.platforms"
_ENTRY: Final = "sglang_dynspec_hooks.entry:activate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one check."""

    verdict: Verdict
    subject: str
    #: What was found; for a failure, the whole expected-found-remedy text.
    text: str


def diagnose(environ: Mapping[str, str] = os.environ) -> list[Check]:
    """
    Run every check.

    Args:
        environ: Where SGLang's variables are looked up.

    Returns:
        The outcomes, in the order in which a server would meet them. No check keeps a later one
        from running.
    """
    checks = [
        _run("entry point", _check_entry_point),
        _run("SGLANG_PLUGINS", lambda: _check_allowed(environ)),
        _run("SGLANG_PLATFORM", lambda: _check_platform(environ)),
        _run("entry module", _check_entry_module),
        _run("sglang", lambda: _check_version(environ)),
    ]
    checks.extend(_seam_checks())
    checks.extend(_policy_checks())
    return checks


def _run(subject: str, check: Callable[[], str]) -> Check:
    """Run one check; what it raises is its failure."""
    try:
        return Check(verdict=Verdict.FITS, subject=subject, text=check())
    except Exception as error:  # noqa: BLE001 - a doctor reports, whatever it meets
        return Check(verdict=Verdict.BROKEN, subject=subject, text=process.one_line(error))


def _check_entry_point() -> str:
    from sglang_dynspec.errors import ConfigError

    found = [point for point in metadata.entry_points(group=GROUP) if point.name == PLUGIN]
    values = sorted({point.value for point in found})
    if values != [_ENTRY]:
        raise ConfigError(
            expected=f"one entry point {PLUGIN} = {_ENTRY} in the group {GROUP}",
            found=", ".join(values) or "none",
            remedy=f"reinstall {DISTRIBUTION} in the environment of SGLang",
        )
    found[0].load()
    return f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}, {_ENTRY}"


def _check_allowed(environ: Mapping[str, str]) -> str:
    from sglang_dynspec.errors import ConfigError

    value = environ.get("SGLANG_PLUGINS", "")
    allowed = {name.strip() for name in value.split(",") if name.strip()}
    if allowed and PLUGIN not in allowed:
        raise ConfigError(
            expected=f"{PLUGIN} among the plugins that SGLANG_PLUGINS allows",
            found=f"SGLANG_PLUGINS={value}",
            remedy=f"unset it, or set SGLANG_PLUGINS={value},{PLUGIN}",
        )
    return f"allows {PLUGIN}" if allowed else "not set, every plugin loads"


def _check_platform(environ: Mapping[str, str]) -> str:
    from sglang_dynspec.errors import ConfigError

    selected = environ.get("SGLANG_PLATFORM", "")
    if not selected:
        return "not set, no distribution is left out"
    # SGLang leaves out the plugins of every distribution that brings an unselected platform.
    left_out = {
        point.dist.name
        for point in metadata.entry_points(group=_PLATFORMS)
        if point.dist is not None and point.name != selected
    }
    if DISTRIBUTION in left_out:
        raise ConfigError(
            expected=f"SGLANG_PLATFORM to keep {DISTRIBUTION}",
            found=f"SGLANG_PLATFORM={selected}",
            remedy="unset it",
        )
    return f"{selected}, which keeps {DISTRIBUTION}"


def _check_entry_module() -> str:
    from sglang_dynspec.errors import SeamError

    # The second is all that the first takes from this package.
    modules = (entry, process)
    own = {module.__name__ for module in modules}
    foreign = sorted(
        name
        for module in modules
        for name in _imports_at_load(Path(str(module.__file__)))
        if name not in own and name.partition(".")[0] not in sys.stdlib_module_names
    )
    if foreign:
        raise SeamError(
            expected="an entry module that imports the standard library alone",
            found=", ".join(foreign),
            remedy="move the import into the function that needs it",
        )
    return "imports the standard library alone"


def _imports_at_load(file: Path) -> Iterator[str]:
    """List the modules that importing a module imports."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _check_version(environ: Mapping[str, str]) -> str:
    version = sglang_version.require_supported(environ)
    if sglang_version.is_supported(version):
        return f"{version}, supported ({sglang_version.SUPPORTED})"
    supported, lifted = sglang_version.SUPPORTED, sglang_version.ALLOW_VERSION
    return f"{version}, outside {supported} but allowed by {lifted}"


def _seam_checks() -> Iterator[Check]:
    try:
        from sglang_dynspec_hooks import seams

        findings = comparison.examine(seams.records(), sglang_version.installed_version())
    except Exception as error:  # noqa: BLE001
        yield Check(verdict=Verdict.BROKEN, subject="seams", text=process.one_line(error))
        return
    for finding in findings:
        text = finding.found
        if finding.verdict is Verdict.BROKEN:
            text = f"expected {finding.expected}; found {text}; install a supported SGLang version"
        use = "hook" if isinstance(finding.record, Seam) else "call"
        yield Check(verdict=finding.verdict, subject=f"{use} {finding.record.target}", text=text)


def _policy_checks() -> Iterator[Check]:
    try:
        from sglang_dynspec.loading.infos import list_policies

        policies = list_policies()
    except Exception as error:  # noqa: BLE001
        yield Check(verdict=Verdict.BROKEN, subject="policies", text=process.one_line(error))
        return
    for policy in policies:
        yield _run(f"policy {policy.name}", functools.partial(_check_policy, policy))


def _check_policy(policy: PolicyInfo) -> str:
    from sglang_dynspec.loading.plugins import find_policy

    find_policy(policy.name)
    return policy.target
