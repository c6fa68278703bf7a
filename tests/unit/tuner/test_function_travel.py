"""How a function travels, and what stays the same about it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveError
from objectives.function import ENDING, load_function
from tuner.function.travel import CannotTravel, fingerprint_of, pickled, travelling

NOTEBOOK = """
WIDTH = {width}
class Net:
    def size(self):
        return WIDTH * {factor}
{gap}def make_training():
    return Net().size(), sorted({{"b", "a"}})
"""


def of_notebook(width: int = 3, factor: int = 1, gap: str = "") -> Callable[[], Any]:
    """A function as a notebook's cell makes it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(NOTEBOOK.format(width=width, factor=factor, gap=gap), names)
    made: Callable[[], Any] = names["make_training"]
    return made


def test_the_fingerprint_follows_code_and_values_and_not_lines() -> None:
    mark = fingerprint_of(of_notebook())
    assert mark == fingerprint_of(of_notebook(gap="# a remark\n\n"))
    assert mark != fingerprint_of(of_notebook(width=4)), "a global it uses"
    assert mark != fingerprint_of(of_notebook(factor=2)), "the code of a class it uses"
    assert fingerprint_of(lambda: mark) != fingerprint_of(lambda: [mark])


def test_the_fingerprint_is_the_same_in_another_process() -> None:
    code = f"exec({NOTEBOOK.format(width=3, factor=1, gap='')!r})\n"
    code += "from tuner.function.travel import fingerprint_of\nprint(fingerprint_of(make_training))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == fingerprint_of(of_notebook())


def test_a_function_comes_back_with_what_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = 7
    for function, wanted in ((of_notebook(), (3, ["a", "b"])), (lambda: scale * 2, 14)):
        mark = fingerprint_of(function)
        with travelling(function, mark, tmp_path / "private") as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
            assert (folder / f"{mark}{ENDING}").stat().st_mode & 0o777 == 0o600
            monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
            assert load_function(mark)() == wanted
        assert not folder.exists(), "it is gone afterwards"


def test_a_file_that_others_could_have_written_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with travelling(of_notebook(), "abc", tmp_path) as folder:
        monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
        (folder / f"abc{ENDING}").chmod(0o644)
        with pytest.raises(ObjectiveError, match="by others"):
            load_function("abc")
    with pytest.raises(ObjectiveError, match=r"tuner\.tune"):
        load_function("abc")


def test_what_cannot_travel_is_named() -> None:
    lock = threading.Lock()

    def makes() -> object:
        return lock

    with pytest.raises(CannotTravel, match=r"makes uses 'lock', a _thread\.lock.*make it inside the function"):
        pickled(makes)
    with pytest.raises(CannotTravel, match="uses 'default 0'"):
        pickled(lambda mine=lock: mine)


def test_a_function_that_carries_its_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.function.travel.LARGE_BYTES", 1000)
    corpus = "x" * 5000
    with pytest.raises(CannotTravel, match="most of it in 'corpus'"):
        pickled(lambda: corpus)
