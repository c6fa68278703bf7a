"""What every test shares: the mark that ties a test to a case, and a real PostgreSQL.

``tests/gpu`` needs ``objectives/`` only and runs where the store's packages are missing: then there is no PostgreSQL.
"""

from importlib.util import find_spec

import pytest

pytest_plugins = ("postgres",) if find_spec("sqlalchemy") is not None else ()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(*names): the public cases this test answers (tests/CASES.md)")
