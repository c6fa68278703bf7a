"""What a knob is. One file per family of knobs beside this one; the list of all is ``objectives.knobs.KNOBS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from objectives.config import KnobValue, TrainingConfig

if TYPE_CHECKING:
    from objectives.trial.setup import Setup


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One value of a knob, with what it does (one sentence) and where that claim comes from (a document or file)."""

    value: KnobValue
    meaning: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What this machine, these libraries and this workload can do: found by a short-lived capability child.

    Attributes:
        device_kind: ``"cpu"`` or ``"cuda"``.
        capability: CUDA compute capability as ``(major, minor)``; None on a CPU.
        cores: Cores this process may use (affinity and control group).
        shared_memory_bytes: Size of /dev/shm; None where there is none.
        libraries: Installed version by distribution name, for those a knob asks about.
        workload_methods: Optional contract methods the workload has.
        unsupported: Reason by ``"knob=value"`` for choices that the capability child tried on a tiny step and saw fail.
        has_convolutions: Whether ``memory_format`` can act.
        packable: Whether the spec gives the global batch in tokens, so that batches may be packed.
    """

    device_kind: Literal["cpu", "cuda"] = "cpu"
    device_name: str = ""
    capability: tuple[int, int] | None = None
    cores: int = 1
    shared_memory_bytes: int | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    workload_methods: frozenset[str] = frozenset()
    unsupported: Mapping[str, str] = field(default_factory=dict)
    has_convolutions: bool = False
    packable: bool = False


def facts_to_mapping(facts: Facts) -> dict[str, Any]:
    """The facts as JSON data: what a capability child sends and what is stored with the worker."""
    return {
        **asdict(facts),
        "capability": None if facts.capability is None else list(facts.capability),
        "libraries": dict(facts.libraries),
        "workload_methods": sorted(facts.workload_methods),
        "unsupported": dict(facts.unsupported),
    }


def facts_from_mapping(values: Mapping[str, Any]) -> Facts:
    """The inverse of :func:`facts_to_mapping`. Keys it does not know (a newer child's) are left out."""
    known = {item.name for item in fields(Facts)}
    kept = {name: value for name, value in values.items() if name in known}
    if kept.get("capability") is not None:
        major, minor = kept["capability"]
        kept["capability"] = (int(major), int(minor))
    kept["workload_methods"] = frozenset(kept.get("workload_methods", ()))
    return Facts(**kept)


def _never(_value: Any, _facts: Facts) -> str | None:
    return None


def _always(_value: Any, _facts: Facts) -> bool:
    return True


def _fits_all(_config: TrainingConfig, _facts: Facts) -> str | None:
    return None


def _no_environment(_value: Any) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One searched setting.

    Attributes:
        name: The field of :class:`TrainingConfig`.
        kind: ``integer``, ``choice`` or ``boolean``.
        summary: One line for people.
        choices: The legal values of a ``choice`` (or ``boolean``) knob, safest first. Empty for integers.
        low: Smallest legal value of an integer knob.
        high: Largest legal value of an integer knob.
        default: Value by default: the trainer's, not the best.
        needs: The optional workload method without which only the default is legal; None when none is needed.
        refuse: Reason why a value cannot run here, or None. Pure; the device is not touched.
        clash: Reason why this knob's value cannot run together with the rest of a configuration here, or None. Pure.
        offer: Whether a legal value belongs to the space when the spec names none: what changes the numerics
            (``bf16-true``, an 8-bit optimizer) or is known to be slow on this kind of device has to be asked for.
        environment: Variables to set in the child before the device is touched.
        apply: Puts the value into effect on a :class:`~objectives.trial.setup.Setup`; None where the value acts
            elsewhere (the loader is built from three knobs).
        read_back: The value that is really in effect, read from the objects themselves, never from the configuration;
            None where nothing can be read.
        acts: Whether the knob has any effect in this configuration (``prefetch_factor`` without workers has none).
    """

    name: str
    kind: Literal["integer", "choice", "boolean"]
    summary: str
    default: KnobValue
    choices: tuple[Choice, ...] = ()
    low: int = 0
    high: int = 2**31 - 1
    needs: str | None = None
    refuse: Callable[[Any, Facts], str | None] = _never
    clash: Callable[[TrainingConfig, Facts], str | None] = _fits_all
    offer: Callable[[Any, Facts], bool] = _always
    environment: Callable[[Any], Mapping[str, str]] = _no_environment
    apply: Callable[[Setup, Any], None] | None = None
    read_back: Callable[[Setup], KnobValue | None] | None = None
    acts: Callable[[TrainingConfig], bool] = lambda _config: True

    @property
    def values(self) -> tuple[KnobValue, ...]:
        """The legal values of a knob with choices, in order."""
        return tuple(choice.value for choice in self.choices)
