"""How a run is split over ranks, and what does not divide. Pure.

A script's own command says how it splits a model (the options of torchtitan, Megatron-LM and the trainers built on
them); the model's configuration says what is split. Nothing is evaluated: words and numbers are read as they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from objectives.contract import SCRIPT
from objectives.model_shape import model_shape

if TYPE_CHECKING:
    from tuner.doctor.check import Verdict
    from tuner.spec.model import StudySpec

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "tensor": (
        "parallelism.tensor_parallel_degree", "tensor_model_parallel_size", "tensor_parallel_size",
        "tensor_parallel_degree", "tp_size", "tp",
    ),
    "pipeline": (
        "parallelism.pipeline_parallel_degree", "pipeline_model_parallel_size", "pipeline_parallel_size",
        "pipeline_parallel_degree", "pp_size", "pp",
    ),
    "context": (
        "parallelism.context_parallel_degree", "context_parallel_size", "context_parallel_degree", "cp_size", "cp",
    ),
    "pipeline_micro_batch": ("parallelism.pipeline_parallel_microbatch_size", "pipeline_parallel_microbatch_size"),
    "heads": ("num_attention_heads", "heads"),
    "layers": ("num_layers", "num_hidden_layers", "layers"),
    "sequence_length": ("training.seq_len", "seq_length", "seq_len", "sequence_length", "max_seq_len"),
}  # fmt: skip
"""Option of a command (dashes read as underscores) by field of :class:`ParallelPlan`; sources: torchtitan 0.3
``config/job_config.py``, Megatron-LM ``training/arguments.py``."""


@dataclass(frozen=True, kw_only=True)
class ParallelPlan:
    """One optimizer step over ranks.

    Attributes:
        ranks: Processes.
        tensor: Ranks that share each layer.
        pipeline: Stages the layers are split into.
        context: Ranks that share each sequence.
        micro_batch: Samples per rank and forward (what a pipeline cuts into its own micro-batches).
        accumulation: Micro-batches per optimizer step.
        pipeline_micro_batch: Samples of one pipeline micro-batch; None: one.
        global_batch: Samples per optimizer step the study asks for; None where it asks for tokens.
        heads, kv_heads, layers, sequence_length: Of the model; None where not known.
    """

    ranks: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    micro_batch: int = 1
    accumulation: int = 1
    pipeline_micro_batch: int | None = None
    global_batch: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    layers: int | None = None
    sequence_length: int | None = None

    @property
    def shards(self) -> int:
        """Ranks that work on the same samples."""
        return self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int:
        """Data-parallel ranks, rounded down."""
        return max(1, self.ranks // self.shards)

    @property
    def in_flight(self) -> int:
        """Micro-batches a pipeline has for its stages."""
        return self.micro_batch // (self.pipeline_micro_batch or 1)

    @property
    def bubble_share(self) -> float:
        """Share of a step in which a stage waits: (stages - 1) / (micro-batches + stages - 1) (GPipe, 2019)."""
        return (self.pipeline - 1) / (max(1, self.in_flight) + self.pipeline - 1)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that does not divide.

    Attributes:
        slug: Short name.
        text: What and by how much.
        fix: The nearest that does.
    """

    slug: str
    verdict: Verdict
    text: str
    fix: str


def plan_of(spec: StudySpec, config: Mapping[str, Any], data: Mapping[str, Any]) -> ParallelPlan:
    """The plan of one configuration of a study.

    Args:
        spec: The study's.
        config: The configuration's values.
        data: What preparing the data found: it may hold the model's shape.
    """
    settings = spec.objective.settings
    said = _said(settings.get("command", ())) if spec.objective.kind == SCRIPT else {}
    shape = _shape(settings.get("model"), data) if spec.objective.kind != SCRIPT else {}
    length = _mapping(settings.get("data")).get("sequence_length")
    found = {
        "heads": shape.get("num_attention_heads"),
        "kv_heads": shape.get("num_key_value_heads"),
        "layers": shape.get("num_hidden_layers"),
        "sequence_length": length,
        **said,
    }
    known = {name: value for name, value in found.items() if isinstance(value, int)}
    return ParallelPlan(
        ranks=spec.ranks,
        micro_batch=int(config["micro_batch_size"]),
        accumulation=int(config["accumulation_steps"]),
        global_batch=spec.global_batch_size,
        **known,
    )


def _shape(model: Any, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's shape: as its preparation stored it, else from the spec's own configuration."""
    return _mapping(data.get("model_shape")) or model_shape(_mapping(_mapping(model).get("config")))


def _mapping(value: Any) -> Mapping[str, Any]:
    """A user's own objective may call anything ``model`` or ``data``."""
    return value if isinstance(value, Mapping) else {}


def _said(command: Sequence[str]) -> dict[str, int]:
    """Fields by the command's own options: ``--option value`` or ``--option=value``; the last word counts."""
    names = {option: field for field, options in OPTIONS.items() for option in options}
    found: dict[str, int] = {}
    for at, word in enumerate(map(str, command)):
        name, equals, value = word.partition("=")
        field = names.get(name.lstrip("-").replace("-", "_")) if name.startswith("-") else None
        value = value if equals else str(command[at + 1]) if at + 1 < len(command) else ""
        if field is not None and value.isascii() and value.isdigit() and int(value) > 0:
            found[field] = int(value)
    return found


def problems(plan: ParallelPlan) -> list[Problem]:
    """Everything of a plan that does not divide, or waits; empty when all is even."""
    return [*_batch(plan), *_model(plan), *_stages(plan), *_sequence(plan)]


def _batch(plan: ParallelPlan) -> Iterator[Problem]:
    if plan.ranks % plan.shards:
        yield Problem(
            slug="ranks",
            verdict="broken",
            text=f"{plan.ranks} ranks do not divide into groups of {plan.shards} that share one model",
            fix=f"start {_nearest(plan.ranks, plan.shards)} ranks",
        )
        return
    real = plan.micro_batch * plan.accumulation * plan.replicas
    if plan.global_batch is not None and real != plan.global_batch:
        yield Problem(
            slug="global_batch",
            verdict="broken",
            text=(
                f"micro-batch {plan.micro_batch} x {plan.accumulation} accumulation steps x {plan.replicas} replicas "
                f"is {real}, not the global batch of {plan.global_batch}"
            ),
            fix=_batch_fix(plan),
        )


def _batch_fix(plan: ParallelPlan) -> str:
    unit = plan.micro_batch * plan.replicas
    if plan.ranks != plan.replicas:
        return f"give the study `ranks: {plan.replicas}`: ranks that share one model share their samples, too"
    return f"use a global batch of {_nearest(plan.global_batch or unit, unit)}"


def _model(plan: ParallelPlan) -> Iterator[Problem]:
    for name, count in (("attention heads", plan.heads), ("key-value heads", plan.kv_heads)):
        if count is not None and count % plan.tensor:
            yield Problem(
                slug="heads",
                verdict="broken",
                text=f"{count} {name} do not divide over {plan.tensor} tensor-parallel ranks",
                fix=f"use {_divisors(count)} tensor-parallel ranks",
            )
    if plan.layers is not None and plan.layers % plan.pipeline:
        yield Problem(
            slug="layers",
            verdict="improve",
            text=f"{plan.layers} layers do not divide into {plan.pipeline} stages: every stage waits for the longest",
            fix=f"use {_divisors(plan.layers)} stages",
        )


def _stages(plan: ParallelPlan) -> Iterator[Problem]:
    if plan.pipeline < 2:
        return
    part = plan.pipeline_micro_batch or 1
    if plan.micro_batch % part:
        yield Problem(
            slug="pipeline_micro_batch",
            verdict="broken",
            text=f"a batch of {plan.micro_batch} does not divide into pipeline micro-batches of {part}",
            fix=f"use a micro_batch_size of {_nearest(plan.micro_batch, part)}",
        )
    elif plan.in_flight < plan.pipeline:
        yield Problem(
            slug="stages",
            verdict="broken",
            text=(
                f"{plan.in_flight} pipeline micro-batches for {plan.pipeline} stages: some stages never have work, and "
                "schedules refuse or hang"
            ),
            fix=f"use a micro_batch_size of {plan.pipeline * part} or more",
        )


def _sequence(plan: ParallelPlan) -> Iterator[Problem]:
    parts = plan.tensor * (2 * plan.context if plan.context > 1 else 1)
    if plan.sequence_length is not None and plan.sequence_length % parts:
        yield Problem(
            slug="sequence",
            verdict="broken",
            text=f"{plan.sequence_length} tokens do not divide into {parts} parts (tensor x 2 x context ranks)",
            fix=f"use {_nearest(plan.sequence_length, parts)} tokens",
        )


def _nearest(wanted: int, step: int) -> str:
    """The multiples of a step around a number."""
    below = wanted // step * step
    return f"{below} or {below + step}" if below else str(step)


def _divisors(number: int) -> str:
    found = [str(each) for each in range(1, number + 1) if number % each == 0][:8]
    return " or ".join((", ".join(found[:-1]), found[-1])) if len(found) > 1 else found[0]
