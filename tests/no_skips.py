"""
A pytest plugin under which nothing is skipped: a skip is a failure that gives the skip's reason.

``make test`` loads it. A lane whose dependency is absent must fail, not shrink. What no machine of
this kind can run is deselected by its marker instead, where the command line shows it.
"""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as a skip, but it ran.
    if report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr
    if isinstance(reason, tuple):
        path, line, message = reason
        reason = f"{path}:{line}: {message}"
    report.outcome = "failed"
    report.longrepr = f"skipped, and nothing may be skipped here: {reason}"
