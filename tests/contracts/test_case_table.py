"""Every case has a test, and the committed table says which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.case_table import CASES, PAGE


def test_the_table_is_what_the_suite_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.case_table"],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr or done.stdout


def test_every_case_has_a_test() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    without = {row[0][2:] for row in rows if "none yet" in row[-1]}
    assert without == set()
    assert set(CASES) <= {row[0][2:] for row in rows}
