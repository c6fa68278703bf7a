"""A run's own folder: private, gone afterwards, and what a killed run left is removed by the next."""

from __future__ import annotations

import os
from pathlib import Path

from objectives.script.run_folder import PREFIX, run_folder


def test_a_folder_in_use_stays_and_a_left_one_goes(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "config.yaml").write_text("a: 1")
    os.utime(left, (1.0, 1.0))
    other = tmp_path / "somebody-else"
    other.mkdir()
    with run_folder(tmp_path) as first:
        assert first.stat().st_mode & 0o077 == 0
        with run_folder(tmp_path) as second:
            assert first.is_dir()
            assert second.is_dir()
        assert not left.exists()
        assert not second.exists()
    assert list(tmp_path.iterdir()) == [other]
