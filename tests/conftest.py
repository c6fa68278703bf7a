"""What every test shares: the marker that ties a test to a handed case."""

import pytest

pytest_plugins = ("postgres",)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(*names): the public cases this test answers (tests/CASES.md)")
