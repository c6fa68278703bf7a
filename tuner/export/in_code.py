"""The lines of code that put a knob into effect where a configuration file cannot. Text for people; nothing runs it."""

from __future__ import annotations

from objectives.config import TrainingConfig

OPEN_ROWS = 32
"""As :data:`objectives.data.packing.OPEN_ROWS` (a test compares: this package loads no data code)."""
_BACKENDS = {
    "sdpa-math": "MATH",
    "sdpa-flash": "FLASH_ATTENTION",
    "sdpa-efficient": "EFFICIENT_ATTENTION",
    "sdpa-cudnn": "CUDNN_ATTENTION",
}
_OPTIMIZERS = {
    "adamw": "torch.optim.AdamW(parameters, lr=..., foreach=False, fused=False)",
    "adamw-foreach": "torch.optim.AdamW(parameters, lr=..., foreach=True, fused=False)",
    "adamw-fused": "torch.optim.AdamW(parameters, lr=..., foreach=False, fused=True)",
    "adamw-8bit": "bitsandbytes.optim.AdamW8bit(parameters, lr=...)",
}
_SELECTIVE = (
    "from functools import partial",
    "from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts",
    'KEPT = ("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.", "aten.convolution.", "aten._scaled_dot")',
    "def policy(context, operator, *args, **kwargs):",
    "    kept = str(operator).startswith(KEPT)",
    "    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE",
    'options = {"use_reentrant": False, "context_fn": partial(create_selective_checkpoint_contexts, policy)}',
    "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)",
)


_PACKED_ROWS = (
    "def packed_rows(documents):  # lists of at most LENGTH token ids, in the order of training: first fit, as tried",
    "    waiting = []",
    "    for document in documents:",
    "        row = next((row for row in waiting if sum(map(len, row)) + len(document) <= LENGTH), None)",
    "        if row is None:",
    "            waiting.append(row := [])",
    "        row.append(document)",
    "        if sum(map(len, row)) == LENGTH:",
    "            waiting.remove(row)",
    "            yield row",
    f"        elif len(waiting) > {OPEN_ROWS}:",
    "            yield waiting.pop(0)",
    "    yield from waiting",
    "def sample(row):  # what fills the row up is a document of its own, without a target",
    "    fill = [FILL] * (LENGTH - sum(map(len, row)))",
    "    return {",
    '        "input_ids": [token for document in [*row, fill] for token in document],',
    '        "position_ids": [place for document in [*row, fill] for place in range(len(document))],',
    '        "labels": [t if at else -100 for document in row for at, t in enumerate(document)] + [-100] * len(fill),',
    "    }",
    "dataset = [sample(row) for row in packed_rows(documents)]  # no attention mask: positions keep documents apart",
)
_IN_ONE_ROW = (
    "def data_collator(samples):  # flash attention keeps documents apart within one row only",
    "    return {name: each.reshape(1, -1) for name, each in default_data_collator(samples).items()}",
)


def packing(config: TrainingConfig, sequence_length: int | None) -> tuple[str, ...]:
    """The data set whose samples are the rows that the trials packed: a micro-batch counts these rows."""
    length = "...  # tokens of a row" if sequence_length is None else str(sequence_length)
    head = (f"LENGTH = {length}", "FILL = tokenizer.pad_token_id or tokenizer.eos_token_id or 0")
    plain = ("data_collator = default_data_collator",)
    return (*head, *_PACKED_ROWS, *(_IN_ONE_ROW if config.attention.startswith("flash") else plain))


def precision(config: TrainingConfig) -> tuple[str, ...]:
    """TF32 always explicit; parameters cast for ``bf16-true``; autocast for the mixed ones."""
    on = config.precision == "tf32"
    lines = [f'torch.set_float32_matmul_precision("{"high" if on else "highest"}")']
    lines += [f'torch.backends.cudnn.conv.fp32_precision = "{"tf32" if on else "ieee"}"']
    if config.precision == "bf16-true":
        lines += ["model = model.to(torch.bfloat16)  # parameters, gradients and optimizer state in bfloat16"]
    if config.precision.endswith("-mixed"):
        dtype = "float16" if config.precision == "fp16-mixed" else "bfloat16"
        lines += [f"with torch.autocast(device.type, dtype=torch.{dtype}):  # around forward and loss"]
    if config.precision == "fp16-mixed":
        lines += ["scaler = torch.amp.GradScaler(device.type)  # starts at 65536"]
    return tuple(lines)


def checkpointing(config: TrainingConfig) -> tuple[str, ...]:
    """Always the non-reentrant kind."""
    if config.activation_checkpointing == "selective":
        return _SELECTIVE
    if config.activation_checkpointing == "full":
        return ('model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})',)
    return ()


def attention(config: TrainingConfig) -> tuple[str, ...]:
    """The model's own switch; one backend by torch's context."""
    if config.attention not in _BACKENDS:
        return (f'model.set_attn_implementation("{config.attention}")',)
    return (
        'model.set_attn_implementation("sdpa")',
        f"with sdpa_kernel(SDPBackend.{_BACKENDS[config.attention]}):  # torch.nn.attention; around forward and loss",
    )


def compiling(config: TrainingConfig) -> tuple[str, ...]:
    """``model.compile`` in the measured mode."""
    return (f'model.compile(mode="{config.compile}")',)


def optimizer(config: TrainingConfig) -> tuple[str, ...]:
    """The implementation of AdamW."""
    return (f"optimizer = {_OPTIMIZERS[config.optimizer]}",)


def memory_format(_config: TrainingConfig) -> tuple[str, ...]:
    """Model and pictures."""
    return (
        "model = model.to(memory_format=torch.channels_last)",
        "pictures = pictures.contiguous(memory_format=torch.channels_last)  # each batch",
    )


def loader_options(config: TrainingConfig) -> dict[str, int | bool]:
    """Keyword arguments of ``torch.utils.data.DataLoader``; without workers those that need some are absent."""
    options: dict[str, int | bool] = {
        "batch_size": config.micro_batch_size,
        "num_workers": config.loader_workers,
        "pin_memory": config.pin_memory,
    }
    if config.loader_workers:
        options |= {"prefetch_factor": config.prefetch_factor, "persistent_workers": True}
    return options


def loader(config: TrainingConfig) -> tuple[str, ...]:
    """The whole loader in one line."""
    options = ", ".join(f"{name}={value}" for name, value in loader_options(config).items())
    return (f"loader = DataLoader(dataset, {options})",)
