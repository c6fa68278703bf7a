"""The keys of a spec: names, shapes and meanings. The reference is made from the descriptions here.

pydantic stays in this package. Models are strict: ``true`` is not 1 and ``"8"`` is not 8. What needs more than one key
to judge (the batch, the search space, the baseline) is judged in ``space.py`` and ``batch.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tuner.spec.model import MemoryLimit
from tuner.spec.quantities import QuantityError, parse_memory, parse_seconds, parse_share

SAMPLERS = ("auto", "tpe", "gp", "nsga2", "random", "grid")
DEVICES = ("auto", "cpu", "cuda")
LARGEST_INTEGER = 2**31 - 1
LONGEST_NAME = 200


def refuse(reason: str, fix: str) -> PydanticCustomError:
    """A problem in our own words, to be raised inside a validator."""
    return PydanticCustomError("tightfit", "{reason}", {"reason": reason, "fix": fix})


def _quantity(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        try:
            return parse(value)
        except QuantityError as error:
            raise refuse(error.reason, error.fix) from error

    return check


def one_of(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """A validator that takes these words and no other."""

    def check(value: Any) -> Any:
        if value not in names:
            raise refuse(f"{value!r} is not one of {', '.join(names)}", nearest_fix(str(value), names))
        return value

    return check


def written_choice(names: tuple[str, ...]) -> str:
    """How the reference writes the type of such a key."""
    return "one of " + ", ".join(f"`{name}`" for name in names)


def nearest_fix(word: str, known: tuple[str, ...]) -> str:
    """``Did you mean 'x'?`` where a known word is near, else the list of the known ones."""
    import difflib

    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}"


def study_name(value: str) -> str:
    """A name of 1 to 200 printable characters without blanks at its ends.

    Raises:
        PydanticCustomError: Not such a name.
    """
    if not value.strip():
        raise refuse("the study has an empty name", "Give it a name, such as 'llama-1b-4k'")
    if len(value) > LONGEST_NAME:
        raise refuse(f"the name has {len(value)} characters", f"Use {LONGEST_NAME} at most")
    if not value.isprintable() or value != value.strip():
        raise refuse("the name holds a line break, a blank at an end or another unprintable character", "Remove it")
    return value


Seconds = Annotated[float, BeforeValidator(_quantity(parse_seconds))]
Share = Annotated[float, BeforeValidator(_quantity(parse_share))]
Memory = Annotated[MemoryLimit, BeforeValidator(_quantity(parse_memory))]
Samples = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]


class Keys(BaseModel):
    """A mapping of a spec. ``written`` says how each key's type is written in the reference."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)
    written: ClassVar[dict[str, str]] = {}


class LimitKeys(Keys):
    """``limits``."""

    written: ClassVar[dict[str, str]] = {
        "memory": "share or size: `92%`, `40GiB`, `40GB`, whole bytes",
        "trials": "integer",
        "time": "time: `20m`, `1h30m`",
        "trial_time": "time: `120s`",
        "compile_time": "time: `5m`",
        "window": "time: `8s`",
        "target_half_width": "percentage: `1%`",
    }
    memory: Memory = Field(
        default=MemoryLimit(share=0.92),
        description="What `peak_memory_bytes` may be at most: a share of the device's total memory (on a CPU of the "
        "smaller of RAM and control-group limit) or a size. What it leaves is the headroom.",
    )
    trials: int = Field(default=40, ge=1, le=100_000, description="Trials at most, the baseline included.")
    time: Seconds | None = Field(
        default=None,
        description="Wall time at most; a third is kept for the confirmation, which makes two rounds of "
        "winner and baseline even where that takes longer. Left out: no limit.",
    )
    trial_time: Seconds = Field(default=120.0, description="One run at most, compilation not counted.")
    compile_time: Seconds = Field(default=300.0, description="Compilation of one run at most.")
    window: Seconds = Field(
        default=8.0, description="The measuring window of a search run: at least half of it is used, at most all of it."
    )
    target_half_width: Share = Field(
        default=0.01,
        description="A window ends early when the relative 95 % half-width of its mean is this small; `0%`: never.",
    )


class StudyKeys(Keys):
    """The top level of a spec."""

    written: ClassVar[dict[str, str]] = {
        "study": "text",
        "objective": "mapping",
        "global_batch_size": "integer",
        "global_batch_tokens": "integer",
        "baseline": "mapping: knob to value",
        "search": "mapping: knob to list, single value or `{low, high}`",
        "limits": "mapping",
        "sampler": written_choice(SAMPLERS),
        "transfer": "boolean",
        "seed": "integer",
        "max_grad_norm": "number",
        "learning_rate": "number",
        "environment": "mapping: variable to text",
        "device": written_choice(DEVICES),
        "on_cuda": "mapping",
    }
    study: Annotated[str, AfterValidator(study_name)] = Field(
        description="The study's name, 1 to 200 printable characters, unique in the store. The same spec under the "
        "same name goes on where it stopped."
    )
    objective: dict[str, Any] = Field(description="What is trained: a model, its data, its loss. `kind` says which.")
    global_batch_size: Samples | None = Field(
        default=None,
        description="Samples per optimizer step over all ranks. Every trial keeps it: micro-batch size x accumulation "
        "steps x ranks is exactly this.",
    )
    global_batch_tokens: Samples | None = Field(
        default=None,
        description="Real tokens per optimizer step instead; only then may batches be packed. Exactly one of the two.",
    )
    baseline: dict[str, Any] = Field(
        default_factory=dict,
        description="The configuration you would have used: trial 0. Knobs left out take the trainer's defaults; it "
        "may lie outside the search space.",
    )
    search: dict[str, Any] = Field(
        description="The space: legal values by knob. For `micro_batch_size` a `{low, high}` keeps the sizes that "
        "divide the global batch; with `global_batch_tokens` it keeps powers of two."
    )
    limits: LimitKeys = Field(default_factory=lambda: LimitKeys(), description="When the study ends.")
    sampler: Annotated[str, AfterValidator(one_of(SAMPLERS))] = Field(
        default="auto", description="Who proposes configurations; `auto` is the best of the others for now."
    )
    transfer: bool = Field(
        default=True,
        description="Whether `auto` starts from what earlier studies in this store taught about the knobs, on the same "
        "device and kind of objective. Their measurements never enter this study's front.",
    )
    seed: int = Field(default=0, ge=0, le=LARGEST_INTEGER, description="Weights, data order and sampler start from it.")
    max_grad_norm: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Gradients are clipped to this norm in every trial."
    )
    learning_rate: float = Field(
        default=1e-4, gt=0, le=100, allow_inf_nan=False, description="Of every trial's optimizer."
    )
    environment: dict[str, Any] = Field(
        default_factory=dict,
        description="Variables every run's process starts with, such as an allocator library or thread settings. "
        "They are stored with the study, so no credentials.",
    )
    device: Annotated[str, AfterValidator(one_of(DEVICES))] = Field(
        default="auto", description="Where trials run; `auto`: every usable GPU of the first one's kind, else the CPU."
    )
    on_cuda: dict[str, Any] | None = Field(
        default=None,
        description="Keys of this list that hold instead where a GPU is used, so that one spec serves a laptop and a "
        "server. Mappings are laid over each other key by key.",
    )
