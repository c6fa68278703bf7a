"""A library that the dynamic linker would leave out is refused."""

from __future__ import annotations

import ctypes.util
from pathlib import Path

import pytest

from tuner.errors import SpecError
from tuner.work.preloads import require_preloads


@pytest.mark.parametrize("separator", [":", " "])
def test_a_library_that_is_not_there_or_none_is_refused_by_name(tmp_path: Path, separator: str) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    missing = str(tmp_path / "libjemalloc.so.2")
    with pytest.raises(SpecError) as caught:
        require_preloads({"LD_PRELOAD": separator.join([missing, str(text)])})
    first, second = caught.value.problems
    assert (first.where, missing in first.reason) == ("environment.LD_PRELOAD", True)
    assert "cannot open shared object file" in first.reason
    assert str(text) in second.reason


def test_libraries_that_are_there_pass_by_path_and_by_name() -> None:
    name = ctypes.util.find_library("m")
    assert name is not None
    require_preloads({"LD_PRELOAD": name})
    require_preloads({"LD_PRELOAD": ""})
    require_preloads({"OMP_NUM_THREADS": "2"})
