"""Skipped tests: where CI is set, those that are skipped for an unexpected reason fail."""

import os
from collections.abc import Generator

import pytest

EXPECTED_SKIPS = {"needs a GPU", "needs Linux", "limits memory as Linux does", "needs Chromium", "needs a C compiler"}
"Why a test may be skipped where CI is set: the machine lacks what is tested."


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_unexpected_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_unexpected_skip(report)
    return report


def fail_unexpected_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turns a skip for an unexpected reason into a failure, where CI is set."""
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2]).removeprefix("Skipped: ")  # type: ignore[index]
    if reason not in EXPECTED_SKIPS:
        report.outcome = "failed"
        report.longrepr = f"unexpected skip: {reason}. Make the test run, or add the reason to EXPECTED_SKIPS"
