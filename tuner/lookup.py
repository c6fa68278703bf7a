"""The doors to what earlier studies found: ``tuner lookup`` and ``tuner.best_config``. The rim: store and machine."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from objectives.model_shape import model_shape
from storage import runs, studies, trials
from storage.confirmed import ConfirmedStudy, confirmed_studies
from storage.database import Database
from tuner import spec as specs
from tuner.answer.fingerprint import Fingerprint, Query, fingerprint, stale
from tuner.answer.lookup import MOST_OTHERS, BestConfig, Candidate, answered, candidates
from tuner.answer.summary import StudyView
from tuner.errors import StoreError, StudyError
from tuner.opening import opened_store
from tuner.settings import Settings
from tuner.spec.quantities import QuantityError, parse_memory

LOGGER = logging.getLogger("tuner.lookup")
_NO_DEFAULT: Any = object()


def best_config(
    study: str | None = None,
    *,
    model: Any = None,
    device: str | None = None,
    sequence_length: int | None = None,
    global_batch_size: int | None = None,
    world_size: int = 1,
    memory: str | int | None = None,
    default: Any = _NO_DEFAULT,
) -> Any:
    """The best confirmed configuration: of one study, or of all that come near what is asked for.

    A training job calls it at its start::

        best = tuner.best_config(model=model.config, device="H100", sequence_length=4096, global_batch_size=256,
                                 default=None)
        micro = best["micro_batch_size"] if best is not None and best.exact else 4

    Args:
        study: A study's name; the further arguments then only narrow down.
        model: A transformers configuration or model, a mapping, a folder, a file, a hub name or a model type.
        device: A device's name, or some of its words; None for any.
        sequence_length: Tokens per sample at most.
        global_batch_size: Samples per optimizer step over all ranks; accumulation is derived for it.
        world_size: Data-parallel ranks of the job.
        memory: What the configuration may need, such as ``40GiB``; None for what each study allowed.
        default: Returned when nothing is known, and when the store cannot be reached or the arguments cannot be used:
            then nothing is ever raised (the reason is logged). Without it None is returned when nothing is known.

    Returns:
        A :class:`~tuner.answer.lookup.BestConfig`, or ``default``. Its ``exact`` says whether it is what was asked for.

    Raises:
        StoreError: There is no store, or it cannot be reached. Not with a ``default``.
        StudyError: There is no such study, or an argument cannot be used. Not with a ``default``.
    """
    try:
        asked = query_of(
            model=model, device=device, sequence_length=sequence_length, global_batch_size=global_batch_size,
            world_size=world_size, memory=memory,
        )  # fmt: skip
        found = _answer(study, asked)[0]
    except Exception as error:
        if default is _NO_DEFAULT:
            raise
        LOGGER.warning("no configuration was looked up: %s", error)
        return default
    return found if found is not None or default is _NO_DEFAULT else default


def lookup(**asked: Any) -> dict[str, Any]:
    """The document of ``tuner lookup``; arguments and errors as :func:`best_config`."""
    query = query_of(**asked)
    found, others = _answer(None, query)
    return {
        "query": {name: value for name, value in asked.items() if name != "model"} | {"model": _said(asked, query)},
        "answer": None if found is None else _document(found),
        "others": [
            {"study": each.study.name, "trial": each.trial.number, "differences": [d.text for d in each.differences]}
            for each in others
        ],
    }


def _document(found: BestConfig) -> dict[str, Any]:
    made = asdict(found)
    interval = found.throughput_interval
    return {
        **made,
        "differences": list(found.differences),
        "stale": None if found.stale is None else list(found.stale),
        "throughput_interval": None if interval is None else list(interval),
    }


def _said(asked: Mapping[str, Any], query: Query) -> Any:
    return asked["model"] if isinstance(asked.get("model"), str) else dict(query.model) or None


def _answer(study: str | None, query: Query) -> tuple[BestConfig | None, list[Candidate]]:
    settings = Settings.from_environment()
    require_store(settings)
    with opened_store(settings, application_name="tuner lookup") as database:
        if study is not None and studies.find(database, study) is None:
            raise StudyError(f"no study {study!r} in this store; `tuner list` shows those there are")
        near = candidates(query, [pair for each in confirmed_studies(database, name=study) if (pair := _known(each))])
        for place, each in enumerate(near[: MOST_OTHERS + 1]):
            found = _confirmed(database, query, each)
            if found is not None:
                return found, [other for at, other in enumerate(near) if at != place][:MOST_OTHERS]
    return None, []


def require_store(settings: Settings) -> None:
    """An embedded store that is not there is not made by asking it.

    Raises:
        StoreError: It is not there.
    """
    if settings.database_url is None and not (settings.data_dir / "tightfit.db").exists():
        raise StoreError(f"there is no store at {settings.data_dir} yet: nothing was ever tuned here")


def _known(study: ConfirmedStudy) -> tuple[ConfirmedStudy, Fingerprint] | None:
    try:
        return study, fingerprint(study, specs.from_mapping(study.spec))
    except (KeyError, TypeError, ValueError):  # written by another version
        return None


def _confirmed(database: Database, query: Query, each: Candidate) -> BestConfig | None:
    """The answer, if the trial still stands: a later run may have thrown it out."""
    study = studies.get(database, each.study.id)
    view = StudyView(
        study=study,
        trials=trials.list_of(database, study.id),
        runs=runs.list_of(database, study_id=study.id),
        spec=specs.from_mapping(study.spec),
    )
    trial = next((one for one in view.trials if one.number == each.trial.number), None)
    known = None if trial is None else view.answer.intervals.get(trial.id)
    if trial is None or known is None:
        return None
    hardware = next((run.hardware for run in reversed(view.runs) if run.trial_id == trial.id and run.hardware), {})
    versions = {**(hardware.get("versions") or {}), "driver": hardware.get("driver")}
    return answered(
        query,
        each,
        interval=(known.low, known.high),
        throughput=known.mean,
        versions={name: said for name, said in versions.items() if said is not None},
        stale=stale(query, each.fingerprint.device, versions),
    )


def query_of(
    *,
    model: Any = None,
    device: str | None = None,
    sequence_length: int | None = None,
    global_batch_size: int | None = None,
    world_size: int = 1,
    memory: str | int | None = None,
) -> Query:
    """What is asked for, with what this machine is.

    Raises:
        StudyError: An argument cannot be used.
    """
    for name, value in (("sequence_length", sequence_length), ("global_batch_size", global_batch_size),
                        ("world_size", world_size)):  # fmt: skip
        if value is not None and (type(value) is not int or value < 1):
            raise StudyError(f"{name} is {value!r}: it takes a whole number above 0")
    shape, called = _shape(model)
    local, versions = _here()
    return Query(
        model=shape,
        model_name=called,
        device=device,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        ranks=world_size,
        memory_bytes=_bytes(memory),
        local_devices=local,
        versions=versions,
    )


def _bytes(memory: str | int | None) -> int | None:
    if memory is None:
        return None
    try:
        found = parse_memory(memory).size_bytes
    except QuantityError as error:
        raise StudyError(f"memory: {error}") from error
    if found is None:
        raise StudyError(f"memory: {memory!r} is a share of an unknown device; write a size such as 40GiB")
    return found


def _shape(model: Any) -> tuple[dict[str, Any], str | None]:
    """A model's shape and name from whatever names it: text, mapping, transformers configuration or model."""
    if model is None:
        return {}, None
    if isinstance(model, (str, Path)):
        return _shape_of_file(Path(model)), str(model)
    config = getattr(model, "config", model)
    config = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(config, Mapping):
        raise StudyError(f"model: a {type(model).__name__} has no configuration; give a folder, a name or a mapping")
    name = config.get("_name_or_path")
    return model_shape(config), str(name) if name else None


def _shape_of_file(path: Path) -> dict[str, Any]:
    """Of ``config.json`` (in a folder, or the file itself); empty where there is none: then it is a name."""
    file = path / "config.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.is_file():
        return {}
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StudyError(f"model: {file} cannot be read: {error}") from error
    return model_shape(values) if isinstance(values, dict) else {}


def _here() -> tuple[frozenset[str], dict[str, str]]:
    """Names of this machine's devices, and its software. Loads no torch and touches no device."""
    from objectives.measure.hardware import list_devices, versions
    from tuner.work.lane import choose_devices

    listed = list_devices()
    driver = next((str(each["driver"]) for each in listed if each.get("driver")), None)
    software = {key: said for key, said in versions().items() if said is not None}
    names = {each.name for kind in ("cpu", "auto") for each in choose_devices(kind, listed)}
    return frozenset(names), software | ({"driver": driver} if driver else {})
