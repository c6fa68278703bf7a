"""A person's own function as objective: what ``tuner.tune`` hands to a child, and what the child makes of its answer.

The function lies pickled in a private folder, which is the objective's folder, and is unpickled here: in a child on the
machine of the person who handed it over, and nowhere else. The store has a fingerprint of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import ObjectiveError

if TYPE_CHECKING:
    import torch

    from objectives.contract import Unit, Workload

KIND = "objectives.function:Function"
ENDING = ".function"
"""Of the file, whose name is the fingerprint."""


class Function:
    """The objective of a function. Its keyword arguments are the spec's settings.

    Args:
        fingerprint: Of the function: which file in the objective's folder it is.
        unit: What its loss counts, ``tokens`` or ``samples``.
        name: What people call it.
    """

    def __init__(self, *, fingerprint: str, unit: Unit = "samples", name: str = "") -> None:
        self.unit = unit
        self._fingerprint, self._name = fingerprint, name

    def build(self, device: torch.device, seed: int) -> Workload:
        """Calls the function and puts the model on the device. On ``meta`` the weights are made on the CPU first."""
        import torch

        from objectives.function_workload import as_workload

        make_training = load_function(self._fingerprint)
        torch.manual_seed(seed)
        workload = as_workload(make_training(), self._name or "make_training")
        workload.model.to(device).train()
        return workload


def load_function(fingerprint: str) -> Callable[[], Any]:
    """The function, from the first folder of the import path that holds its file.

    Raises:
        ObjectiveError: There is no such file, others could have written it, or it cannot be unpickled here.
    """
    name = f"{fingerprint}{ENDING}"
    file = next((path for entry in sys.path if (path := Path(entry or os.curdir) / name).is_file()), None)
    if file is None:
        raise ObjectiveError(
            "the function of this study is not here: it was handed to `tuner.tune`, which never stores it. Call "
            "`tuner.tune` again with the same function to go on"
        )
    _require_private(file)
    head, _, payload = file.read_bytes().partition(b"\n")
    told = json.loads(head)
    sys.path.extend(entry for entry in told["path"] if entry not in sys.path)
    if Path(told["folder"]).is_dir():
        os.chdir(told["folder"])
    return _unpickled(payload)


def _require_private(file: Path) -> None:
    found = file.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ObjectiveError(f"{file} could have been written or read by others: it is not unpickled")


def _unpickled(payload: bytes) -> Callable[[], Any]:
    import cloudpickle

    try:
        function: Callable[[], Any] = cloudpickle.loads(payload)
    except Exception as error:
        raise ObjectiveError(
            f"the function cannot be rebuilt in a fresh process: {type(error).__name__}: {error}. Import inside the "
            "function what only exists in your session"
        ) from error
    return function
