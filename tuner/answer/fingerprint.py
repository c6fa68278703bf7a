"""What a result belongs to, and how far two of these are apart, in words. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from objectives.contract import BUILT_IN
from objectives.model_shape import model_shape
from storage.confirmed import ConfirmedStudy
from tuner.export.handover import CAP_SHARE
from tuner.export.notes import size_text
from tuner.spec.model import StudySpec

NEED = ("model_type", "hidden_size", "num_hidden_layers")
"""Without these two models cannot be told alike."""
FAR = 4.0
"""Results farther away than this are no answer."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One way in which a result is not what was asked for, in words, and how much it matters (0: not at all)."""

    text: str
    weight: float


@dataclass(frozen=True, kw_only=True)
class Query:
    """What is asked for; None leaves a thing open.

    Attributes:
        model: Its shape (:func:`objectives.model_shape.model_shape`); empty when only a name is known.
        model_name: A hub name, folder, model type or an objective's kind.
        device: A device's name, or some of its words; None for any.
        global_batch_size: Samples per optimizer step over all ranks.
        ranks: Data-parallel ranks of the job.
        memory_bytes: What the configuration may need.
        local_devices: Names of this machine's devices: whose software can be compared.
        versions: This machine's software and driver, by name.
    """

    model: Mapping[str, Any] = field(default_factory=dict)
    model_name: str | None = None
    device: str | None = None
    sequence_length: int | None = None
    global_batch_size: int | None = None
    ranks: int = 1
    memory_bytes: int | None = None
    local_devices: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What a stored study's results belong to.

    Attributes:
        names: What its model may be called.
        shape: Of its model; empty when unknown.
        length: Tokens per sample at most; None where samples have none.
        batch: Samples per optimizer step; None where the study gives tokens.
        tokens: Tokens per optimizer step; None where it gives samples.
        limit_bytes: What its trials might need.
        total_bytes: The device's memory; None when unknown.
        adapters: Whether adapters were trained.
    """

    names: frozenset[str]
    shape: Mapping[str, Any]
    device: str
    length: int | None
    batch: int | None
    tokens: int | None
    limit_bytes: int | None
    total_bytes: int | None
    adapters: bool


def fingerprint(study: ConfirmedStudy, spec: StudySpec) -> Fingerprint:
    """Of a stored study."""
    settings = spec.objective.settings
    model: Mapping[str, Any] = settings.get("model") or {} if spec.objective.kind in BUILT_IN else {}
    said = study.data.get("model_shape") or model_shape(model.get("config") or {})
    shape = {**said, **({"model_type": study.data["model_type"]} if study.data.get("model_type") else {})}
    names = {str(model[key]) for key in ("hub", "path") if model.get(key)}
    names |= {study.name, *([str(shape["model_type"])] if shape.get("model_type") else [])}
    names |= set() if spec.objective.kind in BUILT_IN else {spec.objective.kind}
    return Fingerprint(
        names=frozenset(each.rstrip("/").lower() for each in names),
        shape=shape,
        device=study.device or "",
        length=(settings.get("data") or {}).get("sequence_length") if spec.objective.kind in BUILT_IN else None,
        batch=spec.global_batch_size,
        tokens=spec.global_batch_tokens,
        limit_bytes=study.memory_limit_bytes,
        total_bytes=total_bytes(study, spec),
        adapters=bool(settings.get("lora")),
    )


def total_bytes(study: ConfirmedStudy, spec: StudySpec) -> int | None:
    """The device's memory: as a run said it, else the limit over its share; None when unknown."""
    said, share = study.hardware.get("total_memory_bytes"), spec.limits.memory.share
    if isinstance(said, int):
        return said
    return int(study.memory_limit_bytes / share) if share and study.memory_limit_bytes else None


def same_device(asked: str | None, name: str) -> bool:
    """Whether every word that was asked for is in the device's name."""
    words = name.lower().replace("-", " ").split()
    return asked is None or all(word in words for word in asked.lower().replace("-", " ").split())


def differences(query: Query, known: Fingerprint) -> tuple[Difference, ...] | None:
    """Every difference, the weightiest first; None where the result is too far away to be an answer."""
    found = [*_model(query, known), *_device(query, known), *_workload(query, known)]
    total = sum(each.weight for each in found)
    return None if total >= FAR else tuple(sorted(found, key=lambda each: -each.weight))


def _model(query: Query, known: Fingerprint) -> Iterator[Difference]:
    name = (query.model_name or "").rstrip("/").lower()
    named = bool(name) and name in known.names
    if not query.model:
        if name and not named:
            yield Difference(text=f"another model than {query.model_name}", weight=FAR)
        elif name and name == known.shape.get("model_type"):
            yield Difference(text="only the kind of model was asked for, not its size", weight=0.2)
        return
    if query.model.get("model_type") != known.shape.get("model_type"):
        theirs = known.shape.get("model_type", "unknown")
        yield Difference(text=f"another kind of model: {theirs}, not {query.model.get('model_type')}", weight=FAR)
        return
    yield from (each for key in query.model if (each := _number(key, query.model[key], known.shape.get(key))))
    if any(key not in query.model or key not in known.shape for key in NEED) and not named:
        yield Difference(text="the size of one of the models is not known", weight=1.0)


def _number(key: str, asked: Any, found: Any) -> Difference | None:
    """Of one number of the shape; nothing where it is alike or one side does not say it."""
    if asked == found or not isinstance(asked, int) or not isinstance(found, int):
        return None
    return Difference(text=f"{key} {found}, not {asked}", weight=0.1 + 0.5 * _doublings(asked, found))


def _device(query: Query, known: Fingerprint) -> Iterator[Difference]:
    limit = size_text(known.limit_bytes or 0)
    capped = is_capped(known)
    if not same_device(query.device, known.device):
        if capped:
            text = (
                f"measured on {known.device} under a memory cap of {limit}, not on {query.device}: it fits a card with "
                "so much memory, its speed there is not known"
            )
        else:
            text = f"measured on {known.device}, not on {query.device}: its speed there is not known"
        yield Difference(text=text, weight=2.0)
    elif capped and query.device is not None and query.memory_bytes is None:
        text = f"found under a memory cap of {limit} on {known.device}: its whole memory may hold a faster one"
        yield Difference(text=text, weight=0.5)
    if query.memory_bytes and known.limit_bytes and known.limit_bytes < 0.95 * query.memory_bytes:
        text = f"searched under a limit of {limit}: with {size_text(query.memory_bytes)} a faster one may fit"
        yield Difference(text=text, weight=0.3)


def is_capped(known: Fingerprint) -> bool:
    """Whether the trials ran under a memory cap on a larger card; False where the card's memory is not known."""
    limit, total = known.limit_bytes, known.total_bytes
    return limit is not None and total is not None and limit < CAP_SHARE * total


def _workload(query: Query, known: Fingerprint) -> Iterator[Difference]:
    if query.sequence_length is not None and query.sequence_length != known.length:
        yield _length(query.sequence_length, known.length)
    asked, found = query.global_batch_size, known.batch
    if asked is not None and found is None:
        yield Difference(text=f"its global batch is given in tokens ({known.tokens}), not in samples", weight=1.0)
    elif asked is not None and found is not None and asked != found:
        text = f"measured with a global batch of {found}, not of {asked}"
        yield Difference(text=text, weight=0.05 + 0.15 * _doublings(asked, found))
    if known.adapters:
        yield Difference(text="measured with LoRA adapters", weight=1.5)


def _length(asked: int, found: int | None) -> Difference:
    if found is None:
        return Difference(text="its samples have no length in tokens", weight=1.5)
    doublings = _doublings(asked, found)
    fits = "its memory was tested with longer rows" if found > asked else "longer rows need more memory: it may not fit"
    return Difference(text=f"measured with rows of {found} tokens, not of {asked}: {fits}", weight=0.2 + doublings)


def _doublings(one: int, other: int) -> float:
    return abs(math.log2(max(one, 1) / max(other, 1)))


COMPARED = ("torch", "transformers", "cuda", "driver")
"""Software whose change may change which configuration wins."""


def stale(query: Query, device: str, versions: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What has changed on this machine since a result of that device; None where that cannot be judged from here."""
    if device not in query.local_devices or not versions:
        return None
    pairs = ((name, versions.get(name), query.versions.get(name)) for name in COMPARED)
    return tuple(f"{name} {old} then, {new} now" for name, old, new in pairs if old and new and str(old) != str(new))
