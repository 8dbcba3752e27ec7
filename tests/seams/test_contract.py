"""The three gates, on the installed SGLang and on trees made for the purpose."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sglang_dynspec import SeamError
from sglang_dynspec_hooks import seams
from sglang_dynspec_hooks.commands import baseline
from sglang_dynspec_hooks.contract import comparison
from sglang_dynspec_hooks.contract import version as sglang_version
from sglang_dynspec_hooks.contract.comparison import Verdict
from sglang_dynspec_hooks.contract.seam import Called, Kind, Seam

HOOKS = [*seams.idle(), *seams.launcher(), *seams.scheduler()]
RECORDS = seams.records()
RECORD = Called(target="sglang.module.function", parameters=("a", "b"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.target)
def test_every_function_is_as_recorded(record: Seam | Called) -> None:
    (finding,) = comparison.examine([record], sglang_version.installed_version())
    assert (finding.verdict, finding.found) == (Verdict.FITS, "the recorded body")


def test_the_baseline_has_no_other_functions() -> None:
    baseline = comparison.read_baseline()
    installed = sglang_version.installed_version()
    assert list(baseline) == [installed]
    assert set(baseline[installed]) == {record.target for record in RECORDS}


def test_no_function_is_recorded_twice() -> None:
    targets = [record.target for record in RECORDS if isinstance(record, Called)]
    assert len(targets) == len(set(targets))


@pytest.mark.parametrize("hook", HOOKS)
def test_every_seam_says_why(hook: seams.Hook) -> None:
    assert len(hook.seam.reason) > 20
    assert len(hook.seam.removal) > 20
    assert hook.seam.kind is not Kind.REPLACE
    assert sglang_version.is_supported(sglang_version.installed_version(), hook.seam.sglang)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    package = tmp_path / "sglang"
    package.mkdir()
    return package


def examine(root: Path, source: str | None, digest: str = "") -> comparison.Finding:
    if source is not None:
        (root / "module.py").write_text(source, encoding="utf-8")
    baseline = {"1.0": {RECORD.target: digest}}
    (finding,) = comparison.examine([RECORD], "1.0", root=root, baseline=baseline)
    return finding


def test_a_function_that_fits(root: Path) -> None:
    finding = examine(root, "def function(a, b): ...\n")
    assert finding.verdict is Verdict.CHANGED
    digest = comparison.sglang_source.find_function(RECORD.target, root).digest
    assert examine(root, None, digest).verdict is Verdict.FITS


def test_a_changed_body(root: Path) -> None:
    finding = examine(root, "def function(a, b): ...\n", "0" * 64)
    assert finding.verdict is Verdict.CHANGED
    assert finding.found == f"another body, {root / 'module.py'}:1"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def function(a): ...\n", "sglang.module.function(a)"),
        ("def function(b, a): ...\n", "sglang.module.function(b, a)"),
        ("def function(a, *, b): ...\n", "sglang.module.function(a, *, b)"),
        ("def other(a, b): ...\n", "no function function in sglang/module.py"),
    ],
)
def test_a_changed_shape(root: Path, source: str, found: str) -> None:
    finding = examine(root, source)
    assert finding.verdict is Verdict.BROKEN
    assert finding.expected == "sglang.module.function(a, b)"
    assert finding.found == found


def test_a_missing_module(root: Path) -> None:
    finding = examine(root, None)
    assert finding.verdict is Verdict.BROKEN
    assert finding.found == f"no module for sglang.module.function under {root}"


def test_a_broken_shape_stops() -> None:
    record = Called(target="sglang.srt.plugins.load_plugins", parameters=("force",))
    with pytest.raises(SeamError) as caught:
        comparison.require([record], "0.5.23")
    assert caught.value.expected == "sglang.srt.plugins.load_plugins(force)"
    assert caught.value.found == "sglang.srt.plugins.load_plugins() in sglang 0.5.23"
    assert "dynspec doctor" in caught.value.remedy


def test_a_changed_body_warns(
    monkeypatch: pytest.MonkeyPatch, our_log: pytest.LogCaptureFixture
) -> None:
    record = Called(target="sglang.srt.plugins.load_plugins", parameters=())
    monkeypatch.setattr(comparison, "read_baseline", dict)
    comparison.require([record], "0.5.23")
    assert our_log.messages == [
        "seam_bodies_changed sglang=0.5.23 targets=sglang.srt.plugins.load_plugins"
    ]


def test_a_baseline_is_written_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "baseline.json"
    file.write_text('{"0.1": {"x": "y"}}', encoding="utf-8")
    monkeypatch.setattr(comparison, "BASELINE", file)
    comparison.write_baseline(RECORDS, "0.5.23")
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["0.1"] == {"x": "y"}
    assert len(written["0.5.23"]) == len({record.target for record in RECORDS})


def test_the_supported_range_is_the_extras(pytestconfig: pytest.Config) -> None:
    file = pytestconfig.rootpath / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    for extra in ("sglang", "testing"):
        requirements = map(Requirement, project["optional-dependencies"][extra])
        specifiers = {str(each.specifier) for each in requirements if each.name == "sglang"}
        assert specifiers == {sglang_version.SUPPORTED}


def test_another_version_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_version.metadata, "version", lambda _: "0.5.24")
    with pytest.raises(SeamError) as caught:
        sglang_version.require_supported({})
    assert str(caught.value) == (
        "expected sglang==0.5.23; found sglang 0.5.24; "
        "install a supported version, or set SGLANG_DYNSPEC_ALLOW_VERSION=1 to try this one"
    )


def test_another_version_may_be_allowed(
    monkeypatch: pytest.MonkeyPatch, our_log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sglang_version.metadata, "version", lambda _: "0.5.24")
    assert sglang_version.require_supported({"SGLANG_DYNSPEC_ALLOW_VERSION": "1"}) == "0.5.24"
    assert "sglang_version_not_supported installed=0.5.24" in our_log.text


def test_no_sglang_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise sglang_version.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(sglang_version.metadata, "version", missing)
    with pytest.raises(SeamError, match="no installed distribution named sglang"):
        sglang_version.require_supported({})


def test_the_page_lists_the_seams_as_they_are(pytestconfig: pytest.Config) -> None:
    page = (pytestconfig.rootpath / "docs" / "design.md").read_text(encoding="utf-8")
    assert baseline.rewritten(page, baseline.table()) == page, "run `make baseline`"
    files = re.findall(r"\]\((\S+/seams/\w+\.py)\)", page)
    assert len(files) == len({hook.handler.__module__ for hook in HOOKS}) + 1
    assert all((pytestconfig.rootpath / "docs" / file).is_file() for file in files)


def test_a_row_says_what_its_record_says() -> None:
    (row,) = [line for line in baseline.table().splitlines() if "run_batch" in line]
    function, kind, process, why, until = row.strip("| ").split(" | ")
    assert function.startswith("[`Scheduler.run_batch`]")
    assert (kind, process) == ("BEFORE", "scheduler")
    (seam,) = [hook.seam for hook in HOOKS if hook.seam.target.endswith("run_batch")]
    assert (why, until) == (seam.reason, seam.removal)


def test_make_baseline_rewrites_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = comparison.read_baseline()
    digests, page = tmp_path / "baseline.json", tmp_path / "page.md"
    monkeypatch.setattr(comparison, "BASELINE", digests)
    page.write_text(f"before\n{baseline.BEGIN}an old table\n{baseline.END}after\n")
    baseline.main(page)
    assert json.loads(digests.read_text()) == committed
    assert page.read_text() == (
        f"before\n{baseline.BEGIN}\n{baseline.table()}\n{baseline.END}after\n"
    )
    assert capsys.readouterr().out == f"sglang 0.5.23 is the baseline: {digests}, {page}\n"


def test_a_page_without_a_place_for_the_table_stays_as_it_is(tmp_path: Path) -> None:
    before = comparison.BASELINE.read_bytes()
    page = tmp_path / "page.md"
    page.write_text(f"a page\n{baseline.BEGIN}")
    with pytest.raises(SeamError, match="End of the seams") as caught:
        baseline.main(page)
    assert caught.value.remedy == "put both where the table belongs"
    assert page.read_text() == f"a page\n{baseline.BEGIN}"
    assert comparison.BASELINE.read_bytes() == before
