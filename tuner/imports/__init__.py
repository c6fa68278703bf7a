"""A user's own training configuration as baseline and spec. One file per format beside this one, listed in ``FORMATS``.

Only :mod:`tuner.imports.source` and :mod:`tuner.imports.init` touch files.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from tuner.export.known_keys import known_keys
from tuner.imports import accelerate, axolotl, axolotl_keys, deepspeed, hf_trainer, lightning, own, torchtitan
from tuner.imports.imported import Imported
from tuner.imports.merge import merged
from tuner.imports.source import ImportRefused, Source

__all__ = ["FORMATS", "NAMES", "Format", "format_of", "read_all"]


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of configuration that can be read.

    Attributes:
        name: What ``--format`` takes.
        title: As people call it.
        marks: Keys by which it is known.
        read: Says it in our words; never raises.
        known: All its keys, where they are listed; they decide between formats with equally many marks.
    """

    name: str
    title: str
    marks: frozenset[str]
    read: Callable[[Source], Imported]
    known: Callable[[], Set[str]] = frozenset


FORMATS: tuple[Format, ...] = (
    Format(name="hf-trainer", title="Hugging Face TrainingArguments (JSON, YAML, or a script's command line)",
           marks=hf_trainer.MARKS, read=hf_trainer.read, known=lambda: known_keys("hf-trainer") | hf_trainer.OTHERS),
    Format(name="deepspeed", title="DeepSpeed", marks=deepspeed.MARKS, read=deepspeed.read,
           known=lambda: known_keys("deepspeed")),
    Format(name="accelerate", title="accelerate's launch file", marks=accelerate.MARKS, read=accelerate.read,
           known=lambda: known_keys("accelerate")),
    Format(name="lightning", title="Lightning Trainer", marks=lightning.MARKS, read=lightning.read,
           known=lambda: known_keys("lightning")),
    Format(name="lightning-loader", title="keyword arguments of a DataLoader", marks=lightning.LOADER_MARKS,
           read=lightning.read_loader),
    Format(name="axolotl", title="axolotl", marks=axolotl.MARKS, read=axolotl.read, known=lambda: axolotl_keys.AXOLOTL),
    Format(name="torchtitan", title="torchtitan (overrides of its command line, or its older TOML)",
           marks=torchtitan.MARKS, read=torchtitan.read),
    Format(name="tightfit", title="what `tuner export --to json`, torchrun and slurm write", marks=own.MARKS,
           read=own.read),
)  # fmt: skip
"""All formats. A new one is written in a file beside this and added here."""

SHELL = Format(name="shell", title="variables and launcher of a shell file", marks=frozenset(), read=own.read_shell)
"""What a shell file without options says: read beside another file, never asked for."""

NAMES: tuple[str, ...] = tuple(each.name for each in FORMATS)
"""What ``--format`` takes."""


def format_of(source: Source, name: str | None = None) -> Format | None:
    """The format of a file: the one named, else the one whose keys it has most of (the first such); None without one.

    Raises:
        ImportRefused: The name is no format's, or two formats have equally many of the file's marks.
    """
    if name is not None:
        return _named(name)
    if source.written_as == "arguments" and not source.values:
        return SHELL
    if source.written_as == "arguments" and torchtitan.is_overrides(source):
        return _named("torchtitan")
    keys = source.values.keys()
    scores = {each.name: (len(keys & each.marks), len(keys & each.known())) for each in FORMATS}
    best = max(scores.values())
    if best == (0, 0) or (best[0] == 0 and best[1] < 2):
        return None
    found = [each for each in FORMATS if scores[each.name] == best]
    if len(found) > 1 and best[0]:
        names = " or ".join(each.name for each in found)
        raise ImportRefused(f"{source.path}: could be {names}; say which: --format {found[0].name}")
    return found[0]


def _named(name: str) -> Format:
    found = next((each for each in FORMATS if each.name == name), None)
    if found is None:
        raise ImportRefused(f"no format {name!r}; there are {', '.join(NAMES)}")
    return found


def read_all(sources: tuple[Source, ...], name: str | None = None, ranks: int | None = None) -> Imported:
    """Several files of one job as one configuration; where they disagree, that is a problem.

    Args:
        sources: At least one.
        name: The format of all of them; None recognises each.
        ranks: Data-parallel ranks of the job; None takes what the files say.

    Raises:
        ImportRefused: No format is recognised in any of them.
    """
    pairs = [(source, found) for source in sources if (found := format_of(source, name)) is not None]
    if not pairs:
        listed = "; ".join(f"{each.name}: {each.title}" for each in FORMATS)
        where = ", ".join(str(source.path) for source in sources) or "the folder"
        raise ImportRefused(f"{where}: no format is recognised by its keys; name it with --format. There are {listed}")
    known = ranks or next((said for source, each in pairs if (said := each.read(source).ranks)), None)
    read = [
        each.read(replace(source, ranks=source.ranks or known if ranks is None else ranks)) for source, each in pairs
    ]
    return merged(tuple(read), ranks)
