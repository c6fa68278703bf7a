"""What can be known of a script before it runs: whether it can be started as the template says, and on what machine.

A dry look: nothing of the script is executed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveError
from objectives.knobs import KNOBS, knob
from objectives.knobs.knob import Facts, facts_to_mapping
from objectives.measure.hardware import describe, list_devices
from objectives.script.executed import executed
from objectives.script.grammar import GrammarError
from objectives.script.launchers import ranks_of
from objectives.script.template import Template
from objectives.trial.capability import LIBRARIES, compiler_reason, installed

if TYPE_CHECKING:
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest


def run(request: RunRequest, channel: Channel) -> None:
    """Sends one ``answer`` with ``facts``. A knob is legal when the template carries it and the device can do it."""
    channel.phase("import")
    template = Template.of(request.objective.settings)
    folder = Path(request.objective.folder)
    ranks = ranks_of(request.objective.settings)
    if request.device == "cuda" and ranks > 1:
        raise ObjectiveError(
            f"objective.command: it starts {ranks} ranks, and a run has one GPU: start one rank, or set 'device: cpu'"
        )
    require_startable(template, request.objective.settings, folder, request.answer.get("base", {}))
    channel.send("answer", facts=facts_to_mapping(facts_of(template, request.device, request.device_uuid)))
    channel.phase("done")


def refuse(request: RunRequest, _channel: Channel) -> None:
    """For purposes a script cannot serve.

    Raises:
        ObjectiveError: Always.
    """
    raise ObjectiveError(f"a script cannot be asked for {request.purpose!r}: what it needs is known by running it only")


def facts_of(template: Template, device: str, device_uuid: str) -> Facts:
    """The machine's facts, with every method the carried knobs need: the script has it, or reading back will say."""
    known = _device(device, device_uuid)
    needed = {knob(name).needs for name in template.knobs()} - {None}
    reason = compiler_reason(device, triton="triton" in installed(("triton",)))
    compiled = [value for value in knob("compile").values if value != "off"] if reason else []
    return Facts(
        device_kind="cuda" if device == "cuda" else "cpu",
        device_name=str(known["name"]),
        capability=known.get("capability"),
        cores=int(known["cores"]),
        shared_memory_bytes=known["shared_memory_bytes"],
        libraries=installed(LIBRARIES),
        workload_methods=frozenset(str(name) for name in needed),
        unsupported={f"compile={value}": str(reason) for value in compiled},
        has_convolutions=True,
    )


def _device(device: str, uuid: str) -> dict[str, Any]:
    """The device without touching it: this process stays free of torch."""
    known = describe("cpu")
    if device != "cuda":
        return known
    found = next((one for one in list_devices() if one.get("uuid") == uuid), {})
    return known | {name: value for name, value in found.items() if value is not None}


def require_startable(template: Template, settings: Mapping[str, Any], folder: Path, base: Mapping[str, Any]) -> None:
    """Fills the template once and looks whether what it names is there.

    Raises:
        ObjectiveError: The program or the script is not there, or the configuration file cannot be patched so.
    """
    config = TrainingConfig.from_mapping({**_first_words(template), **base})
    try:
        with tempfile.TemporaryDirectory() as run_folder:
            filled = template.fill(
                config, global_batch_size=config.micro_batch_size, seed=0, folder=folder, run_folder=Path(run_folder)
            )
    except GrammarError as error:
        raise ObjectiveError(f"objective.patch: {error}") from error
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    program = filled.arguments[0]
    if shutil.which(program if os.sep not in program else str(folder / program), path=path) is None:
        raise ObjectiveError(
            f"objective.command: it starts {program!r}, and there is no such program (looked through PATH)"
        )
    script = executed(settings, str(folder)).script
    if script is not None and not Path(script).is_file():
        raise ObjectiveError(f"objective.command: it names the script {script}, and there is no such file")


def _first_words(template: Template) -> dict[str, Any]:
    """For knobs with a table: a value that has words, so that the dry look does not stumble over a default."""
    found: dict[str, Any] = {}
    for _, name, table in template.tables():
        item = next(each for each in KNOBS if each.name == name)
        known = [value for value in item.values if str(value).lower() in {key.lower() for key in table}]
        numbers = [int(key) for key in table if key.isdigit()] if item.kind == "integer" else []
        for value in (known or numbers)[:1]:
            found[name] = value
    return found
