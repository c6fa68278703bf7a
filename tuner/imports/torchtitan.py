"""torchtitan: the overrides of its command line (0.3), or the TOML of its older versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.export.problems import nearest
from tuner.imports.arguments import ALONE
from tuner.imports.imported import Imported, Reading
from tuner.imports.source import Source

NAME = "torchtitan"
SECTIONS: Mapping[str, frozenset[str]] = {
    "training": frozenset({
        "local_batch_size", "global_batch_size", "seq_len", "max_norm", "steps", "enable_cpu_offload",
        "disable_cuda_graphs", "dtype", "mixed_precision_param", "mixed_precision_reduce", "gc_freq", "gc_debug",
    }),
    "parallelism": frozenset({
        "data_parallel_replicate_degree", "data_parallel_shard_degree", "fsdp_reshard_after_forward",
        "enable_fsdp_symm_mem", "tensor_parallel_degree", "enable_sequence_parallel", "spmd_backend",
        "pipeline_parallel_degree", "module_fqns_per_model_part", "pipeline_parallel_first_stage_less_layers",
        "pipeline_parallel_last_stage_less_layers", "pipeline_parallel_layers_per_stage", "pipeline_parallel_schedule",
        "pipeline_parallel_schedule_csv", "pipeline_parallel_microbatch_size", "context_parallel_degree",
        "context_parallel_load_balancer", "context_parallel_ptrr_mask_key", "expert_parallel_degree",
    }),
    "compile": frozenset({"enable", "enable_async_tensor_parallel", "components", "backend"}),
    "optimizer": frozenset({"implementation", "param_groups", "optimizer_factory_kwargs_by_name", "name", "lr"}),
    "dataloader": frozenset({
        "dataset", "dataset_path", "num_workers", "persistent_workers", "pin_memory", "prefetch_factor", "infinite",
    }),
    "lr_scheduler": frozenset({"warmup_steps", "total_steps", "decay_ratio", "decay_type", "min_lr_factor"}),
    "debug": frozenset({
        "seed", "spmd_typechecking", "deterministic", "deterministic_warn_only", "moe_force_load_balance",
        "detect_anomaly", "batch_invariant", "print_config", "save_config_file", "enable_structured_logging",
    }),
}  # fmt: skip
"""Keys by section, of torchtitan 0.3. Sections that hold nothing searched are not listed and not judged."""
MOVED = {
    "training.batch_size": "training.local_batch_size",
    "training.compile": "compile.enable",
    "training.gradient_accumulation_steps": "training.global_batch_size",
    "training.seed": "debug.seed",
    "training.dataset": "dataloader.dataset",
    "training.enable_checkpoint": "checkpoint.enable",
    "activation_checkpoint.mode": "the word activation-checkpoint:full (or selective, none)",
}
"""Keys of older versions, and what took their place."""
MARKS = frozenset({*SECTIONS, "activation_checkpoint", "job", "model", "metrics", "checkpoint"})


def read(source: Source) -> Imported:
    """Overrides or TOML in our words."""
    reading = Reading(source, NAME)
    if source.written_as == "arguments":
        reading = Reading(_nested(source), NAME)
    _check(reading)
    _batch(reading)
    _precision(reading)
    _rest(reading, source)
    return reading.done()


def is_overrides(source: Source) -> bool:
    """Whether a command line speaks torchtitan: ``--training.something``."""
    return any(name.partition(".")[0] in SECTIONS and "." in name for name in source.values)


def _nested(source: Source) -> Source:
    """``training.seq-len: 8`` as ``{"training": {"seq_len": 8}}``."""
    made: dict[str, Any] = {}
    for name, value in source.values.items():
        section, _, key = name.replace("-", "_").rpartition(".")
        place = made.setdefault(section, {}) if section else made
        if isinstance(place, dict):
            place[key] = value
    return Source(path=source.path, values=made, ranks=source.ranks, environment=source.environment,
                  words=source.words, problems=source.problems, written_as="arguments")  # fmt: skip


def _check(reading: Reading) -> None:
    reading.use(("lr_scheduler", "module", "config"))
    for section, keys in SECTIONS.items():
        given = reading.source.values.get(section)
        reading.use((section,))
        for key in given if isinstance(given, Mapping) else ():
            name = f"{section}.{key}"
            if name in MOVED:
                reading.problem(name, f"no such key in torchtitan 0.3: its place was taken by {MOVED[name]}")
            elif key not in keys:
                reading.problem(name, nearest(key, keys))


def _batch(reading: Reading) -> None:
    micro = reading.count("training.local_batch_size", "training.batch_size")
    total = reading.value("training.global_batch_size")
    replicas, shards = (_degree(reading, name) for name in ("replicate", "shard"))
    ranks = reading.source.ranks or (replicas * shards if replicas and shards else None)
    reading.knob("micro_batch_size", micro)
    reading.put(ranks=ranks)
    if micro is None or total is None:
        return
    if total == -1:
        reading.put(accumulation_steps=1)
        return
    whole = reading.count("training.global_batch_size")
    if whole is not None and whole % (micro * (ranks or 1)):
        reading.problem("training.global_batch_size", f"{whole} does not divide by {micro} x {ranks or 1} ranks")
    elif whole is not None:
        reading.put(global_batch_size=whole, accumulation_steps=whole // (micro * (ranks or 1)))


def _degree(reading: Reading, kind: str) -> int | None:
    given = reading.value(f"parallelism.data_parallel_{kind}_degree")
    return given if isinstance(given, int) and given > 0 else None


def _precision(reading: Reading) -> None:
    """``dtype`` is the parameters', ``mixed_precision_param`` what a layer computes in. There is no float16."""
    dtype, mixed = (reading.word(f"training.{name}") for name in ("dtype", "mixed_precision_param"))
    for key, word in (("dtype", dtype), ("mixed_precision_param", mixed)):
        if word not in (None, "float32", "bfloat16"):
            reading.problem(f"training.{key}", f"{word} is not there: torchtitan has float32 and bfloat16")
    if dtype == "bfloat16":
        reading.knob("precision", "bf16-true")
    elif mixed == "bfloat16" or (dtype is None and mixed is None):
        why = "left out: torchtitan's default" if mixed is None else None
        reading.knob("precision", "bf16-mixed", unless_sure=why)
    else:
        reading.knob("precision", "fp32", unless_sure="TF32 is set in the environment, not here")


def _rest(reading: Reading, source: Source) -> None:
    _checkpointing(reading, source)
    compiled = reading.flag("compile.enable", "training.compile")
    reading.knob("compile", None if compiled is None else "default" if compiled else "off")
    words = {"fused": "adamw-fused", "foreach": "adamw-foreach", "for-loop": "adamw"}
    reading.chosen("optimizer", words, "optimizer.implementation")
    reading.knob("loader_workers", reading.count("dataloader.num_workers", least=0))
    reading.knob("pin_memory", reading.flag("dataloader.pin_memory"))
    reading.knob("prefetch_factor", reading.count("dataloader.prefetch_factor"))
    length = reading.count("training.seq_len", least=2)
    reading.put(
        max_grad_norm=reading.number("training.max_norm"),
        seed=reading.count("debug.seed", "training.seed", least=0),
        learning_rate=reading.number("optimizer.lr"),
        data={"sequence_length": length} if length else None,
        environment=dict(source.environment) or None,
    )
    for name in ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree"):
        if (reading.count(f"parallelism.{name}") or 1) > 1:
            reading.note(f"parallelism.{name}: trials run on one device; a model split over several is not measured")


def _checkpointing(reading: Reading, source: Source) -> None:
    word = next((each.partition(":")[2] for each in reversed(source.words) if each.startswith(ALONE)), None)
    word = word or reading.word("activation_checkpoint.mode")
    if word not in ("none", "full", "selective"):
        return
    why = "torchtitan's policy also computes every second matrix product again" if word == "selective" else None
    reading.knob("activation_checkpointing", word, unless_sure=why)
