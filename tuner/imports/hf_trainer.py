"""``TrainingArguments`` of the Hugging Face Trainer: JSON, YAML or a command line, TRL's words too."""

from __future__ import annotations

from collections.abc import Mapping

from objectives.config import KnobValue
from tuner.export.known_keys import RENAMED, known_keys
from tuner.export.problems import of_trainer, unknown
from tuner.imports.imported import Imported, Reading
from tuner.imports.models import read_lora, read_model, read_text
from tuner.imports.source import Source

NAME = "hf-trainer"
MARKS = frozenset({
    "per_device_train_batch_size", "gradient_accumulation_steps", "dataloader_num_workers", "output_dir",
    "num_train_epochs", "per_gpu_train_batch_size", "gradient_checkpointing", "activation_checkpointing",
    "lr_scheduler_type", "save_strategy", "evaluation_strategy", "eval_strategy", "per_device_eval_batch_size",
    "logging_steps", "max_steps", "warmup_ratio",
})  # fmt: skip
"""Keys by which the format is known."""
OTHERS = frozenset({
    # of scripts with HfArgumentParser, TRL and LLaMA-Factory, beside the trainer's own
    "model_name_or_path", "config_name", "tokenizer_name", "model_revision", "torch_dtype", "dtype",
    "trust_remote_code", "attn_implementation", "flash_attn", "low_cpu_mem_usage", "use_fast_tokenizer",
    "cache_dir", "token", "config_overrides", "dataset_name", "dataset_config_name", "dataset_config", "dataset",
    "dataset_dir", "dataset_path", "train_file", "validation_file", "dataset_text_field", "dataset_train_split",
    "dataset_test_split", "dataset_num_proc", "dataset_kwargs", "streaming", "block_size", "max_length",
    "max_seq_length", "max_seq_len", "model_max_length", "cutoff_len", "max_train_samples", "max_samples",
    "max_eval_samples", "preprocessing_num_workers", "overwrite_cache", "validation_split_percentage",
    "keep_linebreaks", "packing", "packing_strategy", "padding_free", "neat_packing", "pad_to_multiple_of",
    "eval_packing", "assistant_only_loss", "completion_only_loss", "loss_type", "use_peft", "lora_r", "lora_rank",
    "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target", "lora_modules_to_save", "lora_task_type",
    "use_rslora", "use_dora", "load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "use_bnb_nested_quant",
    "quantization_bit", "stage", "finetuning_type", "template", "val_size", "plot_loss", "ddp_timeout_seconds",
    "pure_bf16", "enable_liger_kernel", "freeze_vision_tower", "config",
})  # fmt: skip
"""Arguments of such scripts; right beside the trainer's, so not listed as unknown."""
OPTIMIZERS: Mapping[str, KnobValue] = {
    "adamw_torch_fused": "adamw-fused",
    "adamw_bnb_8bit": "adamw-8bit",
    "adamw_8bit": "adamw-8bit",
    "adamw_hf": "adamw",
}
ATTENTION: Mapping[str, KnobValue] = {
    **{name: name for name in ("eager", "sdpa", "flash_attention_2", "flex_attention")},
    "fa2": "flash_attention_2",
    "auto": "sdpa",
    "disabled": "eager",
}
_MODEL_DTYPE = "the arguments do not say how the model is loaded: in bfloat16 this is bf16-true"


def read(source: Source) -> Imported:
    """The arguments in our words. What is left out is the trainer's default, which is not PyTorch's everywhere."""
    reading = Reading(source, NAME)
    reading.problems(unknown(source.values, NAME, OTHERS))
    reading.problems(of_trainer(source.values))
    reading.use(("per_device_eval_batch_size", "eval_accumulation_steps", "auto_find_batch_size", *RENAMED[NAME]))
    _batch(reading)
    read_precision(reading)
    _checkpointing(reading)
    _compile(reading)
    _optimizer(reading)
    _loader(reading)
    _model_and_data(reading)
    reading.put(
        max_grad_norm=reading.number("max_grad_norm"),
        learning_rate=reading.number("learning_rate"),
        seed=reading.count("seed", least=0),
        device="cpu" if reading.flag("use_cpu", "no_cuda") else None,
        ranks=source.ranks,
        environment=dict(source.environment) or None,
    )
    _shards(reading)
    return reading.done()


def is_whole(source: Source) -> bool:
    """Whether it says enough of the arguments that the trainer's defaults hold for the rest."""
    return bool(known_keys(NAME) & source.values.keys())


def _batch(reading: Reading) -> None:
    micro = reading.count("per_device_train_batch_size", "per_gpu_train_batch_size")
    if micro is None:
        reading.note("per_device_train_batch_size is left out: 8, the Trainer's default")
    reading.knob("micro_batch_size", 8 if micro is None else micro)
    reading.put(accumulation_steps=reading.count("gradient_accumulation_steps") or 1)


def read_precision(reading: Reading) -> None:
    """``fp16`` and ``bf16`` are autocast; both at once have no meaning, and none is taken."""
    half, brain, tf32 = (reading.flag(name) for name in ("fp16", "bf16", "tf32"))
    dtype = (reading.word("torch_dtype", "dtype") or "").removeprefix("torch.")
    owner = reading.value("deepspeed") is not None
    if half and brain:
        return
    if half or brain:
        reading.knob("precision", "fp16-mixed" if half else "bf16-mixed", unless_sure=_loaded(dtype))
    elif dtype == "bfloat16" or reading.flag("pure_bf16"):
        reading.knob("precision", "bf16-true")
    else:
        why = "DeepSpeed's file owns the precision" if owner else None if dtype == "float32" else _MODEL_DTYPE
        reading.knob("precision", "tf32" if tf32 else "fp32", unless_sure=why)


def _loaded(dtype: str) -> str | None:
    """What a 16-bit model under autocast is: no autocast is left of it but for a few operators."""
    return f"the model is loaded in {dtype}: its parameters have no 32-bit copy" if dtype.endswith("16") else None


def _checkpointing(reading: Reading) -> None:
    on = reading.flag("activation_checkpointing", "gradient_checkpointing")
    reading.use(("gradient_checkpointing", "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"))
    reading.knob("activation_checkpointing", "full" if on else "none", unless_sure=None if on else _IN_CODE)


_IN_CODE = "selective checkpointing is set in code, where no file shows it"


def _compile(reading: Reading) -> None:
    mode = reading.word("torch_compile_mode")
    on = reading.flag("torch_compile") or mode is not None or reading.word("torch_compile_backend") is not None
    if mode not in (None, "default", "reduce-overhead", "max-autotune"):
        reading.note(f"torch_compile_mode: {mode} has no value of the knob compile; the default mode stands in for it")
        mode = None
    reading.knob("compile", (mode or "default") if on else "off")


def _optimizer(reading: Reading) -> None:
    name = reading.word("optim") or "adamw_torch_fused"
    if name == "adamw_torch":
        cpu = bool(reading.flag("use_cpu", "no_cuda"))
        why = "adamw_torch is PyTorch's own choice: foreach on a GPU, plain on a CPU"
        reading.knob("optimizer", "adamw" if cpu else "adamw-foreach", unless_sure=why)
    else:
        reading.chosen("optimizer", OPTIMIZERS, "optim")
        if reading.word("optim") is None:
            reading.knob("optimizer", "adamw-fused", unless_sure="optim is left out: adamw_torch_fused since v5")


def _loader(reading: Reading) -> None:
    reading.knob("loader_workers", reading.count("dataloader_num_workers", least=0) or 0)
    pinned = reading.flag("dataloader_pin_memory")
    reading.knob("pin_memory", True if pinned is None else pinned)
    reading.knob("prefetch_factor", reading.count("dataloader_prefetch_factor"))
    reading.use(("dataloader_persistent_workers",))
    if reading.flag("group_by_length") or reading.word("train_sampling_strategy") == "group_by_length":
        why = "the Trainer sorts by length across optimizer steps; here the rows of one global batch are sorted"
        reading.knob("batching", "length-grouped", unless_sure=why)


def _model_and_data(reading: Reading) -> None:
    read_model(reading, "model_name_or_path")
    read_text(reading, lengths=("max_length", "max_seq_length", "max_seq_len", "cutoff_len", "block_size",
                                "model_max_length"), files=("train_file",),
              hubs=("dataset_name", "dataset"))  # fmt: skip
    reading.chosen("attention", ATTENTION, "attn_implementation", "flash_attn")
    if reading.flag("packing") or reading.flag("neat_packing"):
        reading.knob("batching", "packed", unless_sure="each trainer fills its packed rows in its own way")
    if reading.flag("use_liger_kernel", "enable_liger_kernel"):
        reading.knob("loss", "chunked", unless_sure="Liger's fused loss and layers are not the same kernels")
    read_lora(reading, on=bool(reading.flag("use_peft")) or reading.word("finetuning_type") == "lora")


def _shards(reading: Reading) -> None:
    if reading.value("fsdp"):
        reading.note("fsdp: sharding is no knob; trials run on one device with whole parameters")
    if isinstance(file := reading.value("deepspeed"), str):
        reading.note(f"deepspeed: {file} has a say in precision and batch: name it as well (--from)")
