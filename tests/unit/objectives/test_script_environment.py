"""The environment of a script: the watch on its path, our packages off it, the person's own settings back."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from objectives.script.environment import INSIDE, OWN_VARIABLE, ROOT, WATCH_VARIABLE, script_environment


def test_our_packages_leave_the_path_and_the_watch_comes_first() -> None:
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), "/mine", str(ROOT)]), "PATH": "/usr/bin"}
    made = script_environment(own, {"line": "x"}, {"A": "1"})
    assert made["PYTHONPATH"].split(os.pathsep) == [str(INSIDE), "/mine"]
    assert made["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/usr/bin"]
    assert json.loads(made[WATCH_VARIABLE]) == {"line": "x"}
    assert made["A"] == "1"


def test_the_private_folder_holds_one_name_nobody_has() -> None:
    names = {entry.name for entry in INSIDE.iterdir()} - {"__init__.py", "__pycache__"}
    assert names == {"sitecustomize.py", "_tightfit_watch"}


def test_a_script_gets_the_threads_its_user_set_not_ours() -> None:
    own = {
        "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "MKL_NUM_THREADS": "2",
        OWN_VARIABLE: json.dumps({"OMP_NUM_THREADS": "8", "OMP_WAIT_POLICY": None}),
    }  # fmt: skip
    made = script_environment(own, {}, {})
    assert made["OMP_NUM_THREADS"] == "8"
    assert "OMP_WAIT_POLICY" not in made
    assert made["MKL_NUM_THREADS"] == "2"  # the spec's own: it is not among those to be given back
    assert OWN_VARIABLE not in made
