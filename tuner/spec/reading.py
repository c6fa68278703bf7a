"""``tuner.spec.read``: from a file to a :class:`StudySpec`, or to all of its problems at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from objectives.contract import SCRIPT, ObjectiveReference
from tuner.errors import SpecError, SpecProblem
from tuner.settings import Settings
from tuner.spec.document import Document, for_devices, load, with_overrides
from tuner.spec.keys import LimitKeys, StudyKeys
from tuner.spec.model import Limits, StudySpec
from tuner.spec.objective_keys import KINDS, check_objective
from tuner.spec.script_keys import check_script
from tuner.spec.shape import check_shape, line_of
from tuner.spec.space import Batch, KnobCheck
from tuner.spec.variables import check_environment
from tuner.spec.yaml_text import KeyPath


def usable_gpu() -> bool:
    """Whether this machine has a GPU that a study would use. Touches no device."""
    from objectives.measure.hardware import list_devices

    return any(one["kind"] == "cuda" and one["visible"] and one["total_memory_bytes"] for one in list_devices())


def read(
    source: Path | str | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    has_gpu: Callable[[], bool] = usable_gpu,
) -> StudySpec:
    """Reads a spec and refuses what cannot work. Nothing in it is evaluated; no path in it is touched.

    Args:
        source: A YAML file, YAML text or a mapping. Relative paths start at the file's folder, else at the working one.
        overrides: Values by dotted key that replace the spec's, e.g. ``{"limits.trials": 12}``; None replaces nothing.
        settings: Where the cache folder is; None reads the environment.
        has_gpu: Whether the keys under ``on_cuda`` hold here; asked only where there are any.

    Raises:
        SpecError: Everything that is wrong with it, each with its line, the reason and the fix.
    """
    plain, on_cuda = for_devices(load(source))
    made = _read(with_overrides(plain, overrides), settings or Settings.from_environment())
    if on_cuda is None:
        return made
    larger = _read(with_overrides(on_cuda, overrides), settings or Settings.from_environment())
    return larger if made.device != "cpu" and has_gpu() else made


def _read(document: Document, settings: Settings) -> StudySpec:
    keys, problems = check_shape(StudyKeys, document.values, lines=document.lines)
    found = _Parts(document)
    problems = [*document.problems, *problems, *found.problems]
    if keys is not None:
        problems += [*_limit_problems(keys.limits, document)]
    if problems or keys is None:
        raise SpecError(_in_order(problems), document.name)
    return _built(keys, found, document, settings)


class _Parts:
    """The parts that are judged beside the shape, so that one wrong key does not hide the others' problems."""

    def __init__(self, document: Document) -> None:
        values, lines = document.values, document.lines
        check = KnobCheck(batch=Batch.of(values), lines=lines)
        searched, baseline = _mapping(values, "search"), _mapping(values, "baseline")
        self.search = check.search(searched) if searched is not None else {}
        self.baseline = check.baseline(baseline or {})
        knobs = {**(searched or {}), **(baseline or {})}
        variables = _mapping(values, "environment") or {}
        self.environment, wrong_variables = check_environment(variables, searched=knobs, lines=lines)
        self.objective, wrong_objective = check_objective(_mapping(values, "objective"), lines=lines)
        if self.objective[0] == SCRIPT and not wrong_objective:
            wrong_objective = self._script(values, lines)
        self.problems = [*_batch_problems(document), *check.problems, *wrong_variables, *wrong_objective]

    def _script(self, values: Mapping[str, Any], lines: Mapping[KeyPath, int]) -> list[SpecProblem]:
        """Problems between a script's template and the knobs."""
        return check_script(
            self.objective[1],
            searched=self.search,
            baseline=self.baseline,
            tokens=values.get("global_batch_tokens") is not None,
            lines=lines,
        )


def _mapping(values: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """The mapping under a key; None where it is missing or something else (the shape's check says so)."""
    found = values.get(key)
    return found if isinstance(found, dict) else None


def _batch_problems(document: Document) -> list[SpecProblem]:
    samples, tokens = (document.values.get(f"global_batch_{key}") for key in ("size", "tokens"))
    if samples is not None and tokens is not None:
        reason, fix = "global_batch_size is given too", "Keep one of global_batch_size and global_batch_tokens"
        line = line_of(("global_batch_tokens",), document.lines)
        return [SpecProblem(where="global_batch_tokens", reason=reason, fix=fix, line=line)]
    if samples is None and tokens is None:
        reason = "the key 'global_batch_size' is missing: what the optimizer sees per step must stay the same"
        fix = "Add 'global_batch_size: N', or 'global_batch_tokens: N' for packed batches"
        line = line_of(("global_batch_size",), document.lines)
        return [SpecProblem(where="global_batch_size", reason=reason, fix=fix, line=line)]
    return []


def _limit_problems(limits: LimitKeys, document: Document) -> list[SpecProblem]:
    found = []
    for key, seconds in (("trial_time", limits.trial_time), ("time", limits.time)):
        if seconds is not None and seconds <= limits.window:
            path = ("limits", key)
            reason = f"{seconds:g} s is not longer than the measuring window of {limits.window:g} s"
            fix = f"Give {key} more time, or set a shorter window"
            line = line_of(path, document.lines)
            found.append(SpecProblem(where=f"limits.{key}", reason=reason, fix=fix, line=line))
    return found


def _in_order(problems: list[SpecProblem]) -> tuple[SpecProblem, ...]:
    """By line; a problem that two checks found is said once."""
    by_place = {(problem.where, problem.reason): problem for problem in reversed(problems)}
    return tuple(sorted(by_place.values(), key=lambda problem: (problem.line or 0, problem.where)))


def _built(keys: StudyKeys, found: _Parts, document: Document, settings: Settings) -> StudySpec:
    kind, objective_settings = found.objective
    return StudySpec(
        study=keys.study,
        objective=ObjectiveReference(
            kind=kind,
            settings=objective_settings,
            folder=document.folder,
            cache=str(cache_of(settings, kind, objective_settings, document.folder)),
        ),
        global_batch_size=keys.global_batch_size,
        global_batch_tokens=keys.global_batch_tokens,
        baseline=found.baseline,
        search=found.search,
        limits=_limits(keys.limits),
        sampler=keys.sampler,
        seed=keys.seed,
        max_grad_norm=keys.max_grad_norm,
        learning_rate=keys.learning_rate,
        environment=found.environment,
        device=keys.device,
        transfer=keys.transfer,
    )


def _limits(keys: LimitKeys) -> Limits:
    return Limits(
        memory=keys.memory,
        trials=keys.trials,
        time_seconds=keys.time,
        trial_time_seconds=keys.trial_time,
        compile_time_seconds=keys.compile_time,
        window_seconds=keys.window,
        target_half_width=keys.target_half_width,
    )


def cache_of(settings: Settings, kind: str, objective: Mapping[str, Any], folder: str) -> Path:
    """Where an objective prepares its data on this machine.

    Built-in objectives share a folder and keep their own keys in it; each own objective has one to itself.

    Args:
        settings: Of this machine.
        kind: The objective's.
        objective: Its settings as the spec has them.
        folder: The spec's folder.
    """
    shared = settings.cache_dir / "objectives"
    if kind in KINDS:
        return shared
    said = json.dumps([kind, objective, folder], sort_keys=True)
    return shared / f"own-{hashlib.sha256(said.encode()).hexdigest()[:16]}"
