"""What is wrong with a typed spec: the spec's own problems, then what the operator's list does not name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from objectives.contract import BUILT_IN, SCRIPT
from tuner import spec as specs
from tuner.errors import SpecError, SpecProblem
from tuner.settings import Settings
from tuner.spec.model import StudySpec
from tuner.spec.reading import usable_gpu
from tuner.work.allowed import ENTRY_POINTS, Allowed, Refused, require_allowed


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A typed spec, judged.

    Attributes:
        spec: None where it cannot be used.
        problems: The spec's own, by line.
        refusal: Why no worker may run it; None where one may.
    """

    spec: StudySpec | None = None
    problems: Sequence[SpecProblem] = ()
    refusal: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether it can be submitted."""
        return self.spec is not None and self.refusal is None


def check(text: str, *, has_gpu: bool | None = None) -> Checked:
    """Judges what was typed. It is never taken for a file's name, and nothing in it is evaluated.

    Args:
        text: YAML.
        has_gpu: Whether a worker has a GPU (``on_cuda`` holds then); None looks at this machine.
    """
    try:
        spec = _read(text, has_gpu)
    except SpecError as error:
        return Checked(problems=error.problems)
    settings = Settings.from_environment()
    listed = Allowed.read(settings.allowed_file)
    try:
        spec = _at_home(spec, listed)
        require_allowed(spec, listed, settings.data_dir / "empty")
    except Refused as error:
        return Checked(spec=spec, refusal=str(error))
    return Checked(spec=spec)


def _at_home(spec: StudySpec, listed: Allowed) -> StudySpec:
    """What was typed has no folder: an own objective's module is looked for in the folders that the operator lists."""
    if spec.objective.kind in BUILT_IN or spec.objective.kind == SCRIPT:
        return spec
    first = Path(*spec.objective.kind.partition(":")[0].split(".")[:1])
    homes = [folder for folder in listed.code if (folder / first).is_dir() or (folder / f"{first}.py").is_file()]
    folder = str(homes[0]) if homes else spec.objective.folder
    return replace(spec, objective=replace(spec.objective, folder=folder))


def usable_spec(text: str, *, has_gpu: bool | None = None) -> StudySpec:
    """The spec that was typed.

    Raises:
        SpecError: It cannot be used.
        Refused: The operator's list does not name what it asks for.
    """
    found = check(text, has_gpu=has_gpu)
    if found.spec is None:
        raise SpecError(tuple(found.problems))
    if found.refusal is not None:
        raise Refused(found.refusal)
    return found.spec


def _read(text: str, has_gpu: bool | None) -> StudySpec:
    """Text of one line could be a file's name; with a line break it is not."""
    return specs.read(f"{text}\n", has_gpu=usable_gpu if has_gpu is None else lambda: has_gpu)


def offered_kinds() -> tuple[str, ...]:
    """The objectives that the operator's list names, as ``kind`` takes them."""
    listed = Allowed.read(Settings.from_environment().allowed_file)
    built_in = tuple(each for each in BUILT_IN if each in listed.objectives or "built-in" in listed.objectives)
    own = tuple(each for each in listed.objectives if ":" in each)
    script = ("script",) if listed.scripts else ()
    return (*built_in, *script, *own, *(_advertised() if "entry-points" in listed.objectives else ()))


def _advertised() -> tuple[str, ...]:
    from importlib.metadata import entry_points

    return tuple(sorted(point.value for point in entry_points(group=ENTRY_POINTS)))
