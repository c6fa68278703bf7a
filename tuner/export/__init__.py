"""Files for the training job. One file per format beside this one; the list of all is :data:`FORMATS`.

A format turns a :class:`~tuner.export.handover.Handover` into texts. Nothing here touches a file, a store or torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tuner.export import accelerate, deepspeed, hf_trainer, lightning, plain, slurm, torchrun, torchtitan
from tuner.export.environment import tf32_sentence
from tuner.export.handover import Export, ExportRefused, Handover, require_exact
from tuner.export.notes import PAGE, page, sentences
from tuner.export.text import exports

__all__ = ["FORMATS", "NAMES", "TABLE", "Format", "export", "format_named"]

ENVIRONMENT = "environment.sh"
TABLE = "table"
"""The replay table: of a whole study, so not of :data:`FORMATS`; :mod:`tuner.export.table` writes it."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """One target.

    Attributes:
        name: What ``--to`` takes.
        title: The target as people call it.
        target: Library and versions it is made for, and how it is loaded.
        write: Makes the files; raises :class:`ExportRefused` for what the target cannot hold.
        alone: One document with everything in it: no page of notes beside it.
    """

    name: str
    title: str
    target: str
    write: Callable[[Handover], Export]
    alone: bool = False


FORMATS: tuple[Format, ...] = (
    Format(name="hf-trainer", title=hf_trainer.TITLE, target=hf_trainer.TARGET, write=hf_trainer.write),
    Format(name="accelerate", title=accelerate.TITLE, target=accelerate.TARGET, write=accelerate.write),
    Format(name="deepspeed", title=deepspeed.TITLE, target=deepspeed.TARGET, write=deepspeed.write),
    Format(name="lightning", title=lightning.TITLE, target=lightning.TARGET, write=lightning.write),
    Format(name="torchtitan", title=torchtitan.TITLE, target=torchtitan.TARGET, write=torchtitan.write),
    Format(name="torchrun", title=torchrun.TITLE, target=torchrun.TARGET, write=torchrun.write),
    Format(name="slurm", title=slurm.TITLE, target=slurm.TARGET, write=slurm.write),
    Format(name="json", title=plain.TITLE, target=plain.TARGET, write=plain.write, alone=True),
)
"""All targets of one configuration. A new one is written in a file beside this and added here."""

NAMES: tuple[str, ...] = (*(each.name for each in FORMATS), TABLE)
"""What ``--to`` takes."""


def format_named(name: str) -> Format:
    """The format of that name.

    Raises:
        ExportRefused: There is none; the message lists those there are.
    """
    found = next((each for each in FORMATS if each.name == name), None)
    if found is None:
        raise ExportRefused(f"no format {name!r}; there are {', '.join(NAMES)}")
    return found


def export(handover: Handover, target: Format) -> Export:
    """The files of one format with what belongs beside them: the environment and the page of notes.

    Raises:
        ExportRefused: The batch would not be exact, or the target cannot hold the configuration.
    """
    require_exact(handover)
    made = target.write(handover)
    made = replace(made, notes=(*sentences(handover), *tf32_sentence(made.environment), *made.notes))
    if target.alone:
        return made
    files = dict(made.files)
    if made.environment and not any(name.endswith((".sh", ".sbatch")) for name in files):
        files[ENVIRONMENT] = "\n".join(exports(made.environment)) + "\n"
    files[PAGE] = page(handover, made, target.title, target.target)
    return replace(made, files=files)
