"""The keys each target knows. Those of installed libraries are read from their source, without importing them."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path

DEEPSPEED = frozenset({
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
    "zero_optimization", "fp16", "bf16", "torch_autocast", "optimizer", "scheduler", "prescale_gradients",
    "gradient_predivide_factor", "sparse_gradients", "communication_data_type",
    "seq_parallel_communication_data_type", "data_types", "graph_harvesting", "amp",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "steps_per_print", "wall_clock_breakdown",
    "dump_state", "memory_breakdown", "activation_checkpointing", "flops_profiler", "autotuning", "elasticity",
    "comms_logger", "tensorboard", "wandb", "csv_monitor", "comet", "aio", "data_efficiency",
    "curriculum_learning", "progressive_layer_drop", "compression_training", "sparse_attention", "pipeline",
    "checkpoint", "load_universal_checkpoint", "hybrid_engine", "compile", "tensor_parallel", "timers",
    "disable_allgather", "nebula", "eigenvalue", "quantize_training", "weight_quantization",
    "use_data_before_expert_parallelism", "dataloader_drop_last"
})  # fmt: skip
"""Top-level keys of deepspeed 0.18 to 0.19; it takes unknown ones in silence there (case I05)."""

LIGHTNING = frozenset({
    "accelerator", "strategy", "devices", "num_nodes", "precision", "logger", "callbacks", "fast_dev_run",
    "max_epochs", "min_epochs", "max_steps", "min_steps", "max_time", "limit_train_batches",
    "limit_val_batches", "limit_test_batches", "limit_predict_batches", "overfit_batches",
    "val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps", "log_every_n_steps",
    "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "accumulate_grad_batches",
    "gradient_clip_val", "gradient_clip_algorithm", "deterministic", "benchmark", "inference_mode",
    "use_distributed_sampler", "profiler", "detect_anomaly", "barebones", "plugins", "sync_batchnorm",
    "reload_dataloaders_every_n_epochs", "default_root_dir", "enable_autolog_hparams", "model_registry"
})  # fmt: skip
"""Arguments of ``lightning.Trainer`` 2.4 to 2.6."""

RENAMED = {
    "hf-trainer": {
        "evaluation_strategy": "eval_strategy",
        "per_gpu_train_batch_size": "per_device_train_batch_size",
        "per_gpu_eval_batch_size": "per_device_eval_batch_size",
        "no_cuda": "use_cpu",
        "group_by_length": "train_sampling_strategy",
        "warmup_ratio": "warmup_steps",
        "half_precision_backend": "nothing: torch's autocast is the only one",
        "save_safetensors": "nothing: safetensors is the only format",
        "overwrite_output_dir": "nothing",
        "logging_dir": "the TENSORBOARD_LOGGING_DIR variable",
        "include_tokens_per_second": "include_num_input_tokens_seen",
    },
    "lightning": {"batch_size": "the DataLoader's batch_size", "gpus": "devices", "num_processes": "devices"},
    "deepspeed": {
        "train_micro_batch_size": "train_micro_batch_size_per_gpu",
        "micro_batch_size": "train_micro_batch_size_per_gpu",
    },
}
"""Keys of older versions (or of neighbours) and what took their place."""

_SOURCES = {
    "hf-trainer": ("transformers", "training_args.py", ("TrainingArguments",)),
    "accelerate": ("accelerate", "commands/config/config_args.py", ("BaseConfig", "ClusterConfig")),
}


@cache
def known_keys(name: str) -> frozenset[str]:
    """The keys a format's main file may hold; empty when nothing is known about them."""
    if name in _SOURCES:
        return _fields(*_SOURCES[name])
    return {"deepspeed": DEEPSPEED, "lightning": LIGHTNING}.get(name, frozenset())


def _fields(package: str, file: str, classes: tuple[str, ...]) -> frozenset[str]:
    """Annotated attributes of some classes in an installed package's source; empty where it is not installed."""
    found = importlib.util.find_spec(package)
    places = found.submodule_search_locations if found is not None else None
    source = next((path for place in places or () if (path := Path(place) / file).is_file()), None)
    if source is None:
        return frozenset()
    tree = ast.parse(source.read_text(encoding="utf-8"))
    bodies = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name in classes]
    named = [item.target for body in bodies for item in body if isinstance(item, ast.AnnAssign)]
    return frozenset(target.id for target in named if isinstance(target, ast.Name) and not target.id.startswith("_"))
