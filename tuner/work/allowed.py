"""What a service worker may run: what its operator lists. A person's own ``tuner run`` needs no list.

The list is a YAML file (``TUNER_ALLOWED_FILE``, ``tuner worker --allowed FILE``)::

    objectives: [built-in, entry-points, my_package.objectives, "other_package.module:Name"]
    code: [/srv/objectives]       # folders whose modules and scripts may be run beside the installed packages
    scripts: ["/srv/jobs/*.py"]   # Python files that `kind: script` may run; a module by its name
    data: [/srv/data]             # folders; `stdlib` is always allowed
    models: [/srv/models]
    hub: [Qwen/Qwen3-0.6B]        # names on the hub that may be downloaded; `"*"` for all
    environment: [NCCL_DEBUG]     # variables a spec may set beside the harmless ones

Paths are looked at as they really are: ``..`` and symbolic links are followed first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import glob
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from objectives.contract import BUILT_IN, ObjectiveError
from objectives.pretrained import check_model_folder, model_source, refuse_foreign_code
from objectives.script.executed import executed
from tuner.errors import TightfitError
from tuner.spec.model import StudySpec
from tuner.spec.yaml_text import parse_yaml

ENTRY_POINTS = "tightfit.objectives"
"""The group in which an installed package names its objectives."""
KEYS = ("objectives", "code", "scripts", "data", "models", "hub", "environment")
FOLDERS = ("code", "data", "models")
HARMLESS = (
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUBLAS_WORKSPACE_CONFIG", "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_DEBUG",
)  # fmt: skip
"""Variables that change how fast a process is and load nothing into it (``LD_PRELOAD`` would)."""
MOST_FILES = 20_000
"""Files looked at below one folder; what lies beyond is the operator's."""


class Refused(TightfitError):
    """This worker may not run this study; the text says why, and the way out.

    Attributes:
        everywhere: Whether no worker will ever run it: the study itself is at fault.
    """

    def __init__(self, text: str, *, everywhere: bool = False) -> None:
        self.everywhere = everywhere
        super().__init__(text)


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """An operator's list. Without a file: the built-in objectives on models given by their configuration.

    Attributes:
        objectives: ``built-in``, ``entry-points``, a built-in's name, a module, or ``module:name``.
        code: Folders, resolved; likewise ``data`` and ``models``.
        scripts: Patterns of absolute paths, and names of modules.
        hub: Names or patterns.
        environment: Names or patterns.
        source: Where it was read from, for messages.
    """

    objectives: tuple[str, ...] = ("built-in",)
    code: tuple[Path, ...] = ()
    scripts: tuple[str, ...] = ()
    data: tuple[Path, ...] = ()
    models: tuple[Path, ...] = ()
    hub: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    source: str = "no list is given"

    @classmethod
    def read(cls, file: Path | None) -> Allowed:
        """The list of a file; the default one for None.

        Raises:
            TightfitError: It cannot be read, or holds something else than lists of text under the known keys.
        """
        if file is None:
            return cls()
        try:
            parsed = parse_yaml(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TightfitError(f"the operator's list {file} cannot be read: {error}") from error
        if parsed.problems:
            raise TightfitError(f"the operator's list {file}: {parsed.problems[0].reason}")
        return cls._of(_checked(parsed.value, file), source=str(file))

    @classmethod
    def _of(cls, listed: Mapping[str, list[str]], source: str) -> Allowed:
        folders = {key: tuple(map(_real, listed[key])) for key in FOLDERS if key in listed}
        texts = {key: tuple(items) for key, items in listed.items() if key not in FOLDERS}
        return cls(**folders, **texts, source=source)  # type: ignore[arg-type]

    def to_mapping(self) -> dict[str, Any]:
        """For the worker's row: what people see of it."""
        return {key: [str(item) for item in getattr(self, key)] for key in KEYS}


def _checked(values: Any, file: Path) -> dict[str, list[str]]:
    if not isinstance(values or {}, dict):
        raise TightfitError(f"the operator's list {file} is no mapping; its keys are {', '.join(KEYS)}")
    for key, listed in (values or {}).items():
        if key not in KEYS:
            raise TightfitError(f"the operator's list {file}: unknown key {key!r}; there are {', '.join(KEYS)}")
        if not isinstance(listed, list) or not all(isinstance(item, str) and item for item in listed):
            raise TightfitError(f"the operator's list {file}: {key} is no list of texts")
    return dict(values or {})


def require_allowed(spec: StudySpec, allowed: Allowed, empty: Path) -> StudySpec:
    """The spec as a worker may run it.

    A spec's folder that is not listed under ``code`` is replaced by an empty one, so that no module is found there;
    the built-in objectives' relative paths are made absolute before.

    Args:
        spec: As submitted.
        allowed: The operator's list.
        empty: A folder of the worker's own without anything in it.

    Raises:
        Refused: It names something that is not listed, or that nobody should run.
    """
    _require_environment(spec, allowed)
    _require_objective(spec, allowed)
    settings = dict(spec.objective.settings)
    if spec.objective.kind in BUILT_IN:
        settings = _BuiltIn(spec, allowed).required()
    elif spec.objective.kind == "script":
        _require_script(spec, allowed)
    else:
        _require_own_paths(spec, allowed)
    folder = spec.objective.folder
    if not _keeps_folder(spec, allowed):
        empty.mkdir(parents=True, exist_ok=True)
        folder = str(empty)
    return replace(spec, objective=replace(spec.objective, settings=settings, folder=folder))


def _keeps_folder(spec: StudySpec, allowed: Allowed) -> bool:
    """Whether modules may be found in the spec's folder: it is listed, or an allowed script lies in it."""
    folder = _real(spec.objective.folder)
    if spec.objective.kind != "script" or _inside(folder, allowed.code):
        return _inside(folder, allowed.code)
    script = executed(spec.objective.settings, spec.objective.folder).script
    return script is not None and _real(script).parent == folder


def _require_environment(spec: StudySpec, allowed: Allowed) -> None:
    for name in spec.environment:
        if not _matches(name, (*HARMLESS, *allowed.environment)):
            raise Refused(_unlisted(f"the variable {name}", "environment", name, allowed))


def _require_objective(spec: StudySpec, allowed: Allowed) -> None:
    kind, listed = spec.objective.kind, allowed.objectives
    if kind in BUILT_IN:
        fine = kind in listed or "built-in" in listed
    elif kind == "script":
        return
    else:
        fine = _is_listed_module(kind, listed) or ("entry-points" in listed and kind in _advertised())
    if not fine:
        raise Refused(_unlisted(f"objective {kind!r}", "objectives", kind.partition(":")[0], allowed))


def _is_listed_module(kind: str, listed: tuple[str, ...]) -> bool:
    module = kind.partition(":")[0]
    return any(each in (kind, module) or module.startswith(f"{each}.") for each in listed)


def _advertised() -> frozenset[str]:
    return frozenset(point.value for point in entry_points(group=ENTRY_POINTS))


class _BuiltIn:
    """The paths of a built-in objective: its model, tokenizer and data."""

    def __init__(self, spec: StudySpec, allowed: Allowed) -> None:
        self._settings, self._folder, self._allowed = dict(spec.objective.settings), spec.objective.folder, allowed

    def required(self) -> dict[str, Any]:
        """The settings with absolute paths."""
        made = dict(self._settings)
        if "model" in made:
            made["model"] = self._model(made["model"])
        if isinstance(made.get("data"), Mapping):
            made["data"] = self._data(dict(made["data"]))
        return made

    def _model(self, asked: Any) -> Any:
        try:
            source = model_source(asked, Path(self._folder))
            if source.hub is not None:
                return self._hub(asked, source.hub)
            if source.folder is None:
                return asked
            _require_inside(source.folder, (*self._allowed.models, *self._allowed.code), "models", self._allowed)
            check_model_folder(source.folder)
        except ObjectiveError as error:
            raise Refused(str(error), everywhere=isinstance(asked, Mapping) and "config" in asked) from error
        return {**asked, "path": str(source.folder)}

    def _hub(self, asked: Any, name: str) -> Any:
        if not _matches(name, self._allowed.hub):
            raise Refused(_unlisted(f"the hub name {name!r}", "hub", name, self._allowed))
        return asked

    def _data(self, data: dict[str, Any]) -> dict[str, Any]:
        path = data.get("path")
        if isinstance(path, list):
            data["path"] = [self._data_path(str(each)) for each in path]
        elif isinstance(path, str):
            data["path"] = self._data_path(path)
        if isinstance(data.get("tokenizer"), str):
            data["tokenizer"] = self._tokenizer(data["tokenizer"])
        return data

    def _data_path(self, path: str) -> str:
        if path == "stdlib":
            return path
        absolute = os.path.join(self._folder, os.path.expanduser(path))  # noqa: PTH111, PTH118 - it may be a pattern
        roots = (*self._allowed.data, *self._allowed.code)
        for found in _named(absolute):
            _require_inside(found, roots, "data", self._allowed)
        return absolute

    def _tokenizer(self, name: str) -> str:
        folder = (Path(self._folder) / Path(name).expanduser()).resolve()
        if not folder.is_dir() and name.count("/") <= 1 and not name.startswith((".", "/", "~")):
            return str(self._hub(name, name))
        listed = self._allowed
        _require_inside(folder, (*listed.models, *listed.data, *listed.code), "models", listed)
        try:
            refuse_foreign_code(folder, "objective.data.tokenizer")
        except ObjectiveError as error:
            raise Refused(str(error)) from error
        return str(folder)


def _require_script(spec: StudySpec, allowed: Allowed) -> None:
    """A script is allowed by the real path of its file, or its module by name; what it runs must be certain."""
    run = executed(spec.objective.settings, spec.objective.folder)
    for name in run.environment:
        if not _matches(name, (*HARMLESS, *allowed.environment)):
            raise Refused(_unlisted(f"the variable {name}", "environment", name, allowed))
    if run.script is None and run.module is None:
        raise Refused(
            f"it is not certain what the command of objective 'script' runs ({run.program} ...): name a Python file",
            everywhere=True,
        )
    name = str(_real(run.script)) if run.script is not None else str(run.module)
    if os.sep in run.program and not _matches(str(_real(run.program)), allowed.scripts):
        raise Refused(_unlisted(f"the program {run.program}", "scripts", run.program, allowed))
    if not _matches(name, allowed.scripts):
        raise Refused(_unlisted(f"the script {name}", "scripts", name, allowed))
    patch = spec.objective.settings.get("patch")
    if isinstance(patch, Mapping):
        file = _real(os.path.join(spec.objective.folder, str(patch.get("file", ""))))  # noqa: PTH118
        _require_inside(file, (*allowed.data, *allowed.models, *allowed.code), "data", allowed)


def _require_own_paths(spec: StudySpec, allowed: Allowed) -> None:
    """Of an own objective's settings, texts that are paths for certain: absolute, from home, or with ``..``."""
    roots = (*allowed.data, *allowed.models, *allowed.code)
    for text in _texts(spec.objective.settings):
        if text.startswith(("/", "~")) or ".." in Path(text).parts:
            _require_inside(_real(os.path.join(spec.objective.folder, text)), roots, "data", allowed)  # noqa: PTH118


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _named(pattern: str) -> Iterator[Path]:
    """What a path or pattern names: itself up to its first wildcard, what matches, and what lies below folders."""
    wild = min((pattern.find(each) for each in "*?[" if each in pattern), default=None)
    yield _real(pattern if wild is None else pattern[:wild].rpartition("/")[0] or "/")
    seen = 0
    for match in glob(pattern, recursive=True):  # noqa: PTH207 - an absolute pattern
        yield _real(match)
        for folder, _, files in os.walk(match):
            yield _real(folder)
            for file in files:
                seen += 1
                if seen > MOST_FILES:
                    return
                yield _real(os.path.join(folder, file))  # noqa: PTH118


def _real(path: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111


def _inside(path: Path, roots: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _require_inside(path: Path, roots: tuple[Path, ...], key: str, allowed: Allowed) -> None:
    if not _inside(_real(str(path)), roots):
        raise Refused(_unlisted(f"the path {path}", key, str(path), allowed))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _unlisted(what: str, key: str, entry: str, allowed: Allowed) -> str:
    return f"{what} is not on this worker's list ({allowed.source}): its operator would add {entry!r} under `{key}`"
