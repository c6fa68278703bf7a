"""The space: which configurations a study may try on this machine, and why the others may not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

from objectives.config import KnobValue, TrainingConfig
from objectives.knobs import canonical, clashes, config_key, knob, legal_values
from objectives.knobs.knob import Facts
from tuner.search.batch import GlobalBatch
from tuner.spec.model import StudySpec

Params = Mapping[str, KnobValue]
"""One value for each knob of a space."""

EXACT_SIZE = 20_000
"""Up to so many combinations the size of a space is counted, above it is the product of its choices."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """The searched knobs with the values that can run here.

    Attributes:
        values: Values by knob, in the order of the spec, each tuple in a fixed order (integers ascending).
        fixed: The knobs that are not searched: the baseline's values.
        batch: The global batch every configuration keeps.
        facts: What this machine can do (which legal values cannot run together).
        refused: Reason by ``"knob=value"`` (or ``"micro_batch_size=4 batching=packed"``) for what was taken out.
    """

    values: Mapping[str, tuple[KnobValue, ...]]
    fixed: Mapping[str, KnobValue]
    batch: GlobalBatch
    facts: Facts = field(default_factory=Facts)
    refused: Mapping[str, str] = field(default_factory=dict)

    def config(self, params: Params) -> TrainingConfig:
        """The canonical configuration of one value per searched knob, accumulation derived.

        Raises:
            ValueError: The micro-batch cannot make the global batch with this batching, or values cannot run together.
        """
        made = TrainingConfig.from_mapping({**self.fixed, **params})
        steps = self.batch.accumulation(micro_batch_size=made.micro_batch_size, batching=made.batching)
        config = canonical(made.with_values(accumulation_steps=steps))
        if reasons := clashes(config, self.facts):
            raise ValueError("; ".join(reasons))
        return config

    def params(self, config: TrainingConfig) -> Params | None:
        """The searched values of a configuration; None when it lies outside the space."""
        values = config.knobs()
        params = {name: values[name] for name in self.values}
        inside = all(params[name] in choices for name, choices in self.values.items())
        return params if inside and self._same(params, config) else None

    def __contains__(self, config: TrainingConfig) -> bool:
        return self.params(config) is not None

    def configs(self) -> Iterator[TrainingConfig]:
        """Every configuration once, lazily, in the order of the spec (the last knob moves fastest)."""
        return (config for _, config in self.keyed())

    def keyed(self) -> Iterator[tuple[str, TrainingConfig]]:
        """As :meth:`configs`, each with its key; kept in memory up to :data:`EXACT_SIZE` combinations."""
        return iter(self._small) if self.combinations <= EXACT_SIZE else self._walk()

    @cached_property
    def _small(self) -> tuple[tuple[str, TrainingConfig], ...]:
        return tuple(self._walk())

    def _walk(self) -> Iterator[tuple[str, TrainingConfig]]:
        seen: set[str] = set()
        for choice in product(*self.values.values()):
            made = self._try(dict(zip(self.values, choice, strict=True)))
            if made is None or (key := config_key(made)) in seen:
                continue
            seen.add(key)
            yield key, made

    @cached_property
    def combinations(self) -> int:
        """Product of the number of values: an upper bound of the size, known without enumeration."""
        return prod(len(choices) for choices in self.values.values())

    @cached_property
    def size(self) -> int:
        """Distinct configurations; above :data:`EXACT_SIZE` combinations the upper bound."""
        return self.combinations if self.combinations > EXACT_SIZE else len(self._small)

    def _try(self, params: Params) -> TrainingConfig | None:
        try:
            return self.config(params)
        except ValueError:
            return None

    def _same(self, params: Params, config: TrainingConfig) -> bool:
        made = self._try(params)
        return made is not None and config_key(made) == config_key(config)


def make_space(spec: StudySpec, facts: Facts, batch: GlobalBatch, baseline: Params) -> Space:
    """The spec's search after what this machine refuses.

    Args:
        spec: The spec.
        facts: What this machine, these libraries and this workload can do.
        batch: The global batch.
        baseline: The baseline's values, for the knobs that are not searched; a refused one gives way to the default.
    """
    refused: dict[str, str] = {}
    values = {name: _allowed(name, choices, facts, refused) for name, choices in spec.search.items()}
    fixed = {name: _fixed(name, value, facts, refused) for name, value in baseline.items() if name not in values}
    batchings = values.get("batching", (fixed.get("batching", "padded"),))
    micro = values.get("micro_batch_size")
    if micro is not None:
        values["micro_batch_size"] = _dividing(micro, tuple(map(str, batchings)), batch, refused)
    return Space(values=values, fixed=fixed, batch=batch, facts=facts, refused=refused)


def _allowed(name: str, choices: tuple[KnobValue, ...], facts: Facts, refused: dict[str, str]) -> tuple[KnobValue, ...]:
    legal, reasons = legal_values(knob(name), facts, dict.fromkeys(choices))
    refused.update({f"{name}={value}": reason for value, reason in reasons.items()})
    if legal:
        return tuple(sorted(legal, key=int)) if knob(name).kind == "integer" else legal
    default = knob(name).default
    refused[name] = f"none of the listed values can run here; {default!r} is used"
    return (default,)


def _fixed(name: str, value: KnobValue, facts: Facts, refused: dict[str, str]) -> KnobValue:
    return _allowed(name, (value,), facts, refused)[0]


def _dividing(
    micro: tuple[KnobValue, ...], batchings: tuple[str, ...], batch: GlobalBatch, refused: dict[str, str]
) -> tuple[KnobValue, ...]:
    """The micro-batches that make the global batch with at least one of the batching modes."""
    kept = []
    for size in micro:
        reasons = {batching: _why_not(int(size), batching, batch) for batching in batchings}
        if any(reason is None for reason in reasons.values()):
            kept.append(size)
        for batching, reason in reasons.items():
            if reason is not None:
                tail = f" batching={batching}" if len(batchings) > 1 else ""
                refused[f"micro_batch_size={size}{tail}"] = reason
    return tuple(kept)


def _why_not(size: int, batching: str, batch: GlobalBatch) -> str | None:
    try:
        batch.accumulation(micro_batch_size=size, batching=batching)
    except ValueError as error:
        return str(error)
    return None
