"""An axolotl configuration."""

from __future__ import annotations

from collections.abc import Mapping

from objectives.config import KnobValue
from tuner.export.problems import nearest
from tuner.imports.axolotl_keys import AXOLOTL
from tuner.imports.imported import Imported, Reading
from tuner.imports.models import read_lora, read_model, read_text
from tuner.imports.source import Source

NAME = "axolotl"
MARKS = frozenset({
    "base_model", "micro_batch_size", "sequence_len", "datasets", "sample_packing", "val_set_size", "adapter",
    "flash_attention", "dataset_prepared_path", "lora_target_linear", "pad_to_sequence_len",
    "gradient_accumulation_steps",
})  # fmt: skip
"""Keys by which the format is known."""
OPTIMIZERS: Mapping[str, KnobValue] = {
    "adamw_torch_fused": "adamw-fused",
    "adamw_bnb_8bit": "adamw-8bit",
    "adamw_8bit": "adamw-8bit",
    "adamw_hf": "adamw",
    "adamw_torch": "adamw-foreach",
}
ATTENTION = {
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
    "flex_attention": "flex_attention",
}
"""The knob's value by axolotl's older switches."""
WORDS: Mapping[str, KnobValue] = {name: name for name in ATTENTION.values()}


def read(source: Source) -> Imported:
    """The configuration in our words."""
    reading = Reading(source, NAME)
    reading.problems([(key, nearest(key, AXOLOTL)) for key in source.values if key not in AXOLOTL])
    _batch(reading)
    _precision(reading)
    _memory(reading)
    _loader(reading)
    read_model(reading, "base_model")
    _data(reading)
    read_lora(reading, on=reading.word("adapter") in ("lora", "qlora"))
    reading.put(
        max_grad_norm=reading.number("max_grad_norm"),
        learning_rate=reading.number("learning_rate"),
        seed=reading.count("seed", least=0),
        ranks=source.ranks,
    )
    for name in ("fsdp", "fsdp_config", "deepspeed"):
        if reading.value(name):
            reading.note(f"{name}: sharding is no knob; trials run on one device with whole parameters")
    return reading.done()


def _batch(reading: Reading) -> None:
    micro, steps = reading.count("micro_batch_size"), reading.count("gradient_accumulation_steps")
    total = reading.count("batch_size")
    if total is not None:
        product = (micro or 1) * (steps or 1)
        said = f"batch_size {total} is not micro_batch_size x gradient_accumulation_steps = {product}"
        odd = micro and steps and total % product
        reading.problem("batch_size", said if odd else "axolotl advises against it: accumulation follows from it")
        if steps is None and micro and total % micro == 0:
            steps = total // micro
    if micro is None:
        reading.note("micro_batch_size is left out: 1, axolotl's default")
    reading.knob("micro_batch_size", micro or 1)
    reading.put(accumulation_steps=steps or 1)
    if reading.flag("auto_find_batch_size"):
        reading.problem("auto_find_batch_size", "halves the batch in silence, and with it the global batch")


def _precision(reading: Reading) -> None:
    """``bf16: auto`` is bf16 where the GPU can; ``full`` keeps the parameters in it."""
    given, half = reading.word("bf16"), reading.flag("fp16") or reading.flag("float16")
    tf32 = reading.flag("tf32")
    full = (given or "").lower() == "full" or bool(reading.flag("bfloat16"))
    brain = (given or "").lower() in ("auto", "true", "full", "yes", "on")
    if half and brain:
        reading.problem("fp16", "fp16 and bf16 are both on (auto is on where the GPU can): at most one can be")
    elif full:
        reading.knob("precision", "bf16-true")
    elif half or brain:
        reading.knob("precision", "fp16-mixed" if half else "bf16-mixed")
    elif given is not None or half is not None:
        reading.knob("precision", "tf32" if tf32 else "fp32")


def _memory(reading: Reading) -> None:
    given = (reading.word("gradient_checkpointing") or "false").lower()
    selective = reading.value("selective_checkpointing")
    reading.use(("gradient_checkpointing_kwargs",))
    on = given in ("true", "yes", "on", "offload", "offload_disk", "unsloth")
    value = "selective" if on and selective else "full" if on else "none"
    offloads = given.startswith(("offload", "unsloth"))
    why = f"gradient_checkpointing: {given} also moves activations away, which trials do not" if offloads else None
    reading.knob("activation_checkpointing", value, unless_sure=why)
    reading.chosen("optimizer", OPTIMIZERS, "optimizer")
    if reading.word("optimizer") == "adamw_torch":
        reading.knob("optimizer", "adamw-foreach", unless_sure="adamw_torch is PyTorch's own choice on each device")
    compiled = reading.word("torch_compile")
    reading.knob("compile", "default" if (compiled or "").lower() in ("true", "auto") else "off")
    reading.chosen("attention", WORDS, "attn_implementation")
    for switch, attention in ATTENTION.items():
        if reading.flag(switch):
            reading.knob("attention", attention)
    if reading.flag("liger_fused_linear_cross_entropy") or reading.flag("cut_cross_entropy"):
        reading.knob("loss", "chunked", unless_sure="a fused kernel of another package is not the same")


def _loader(reading: Reading) -> None:
    reading.knob("loader_workers", reading.count("dataloader_num_workers", least=0) or 0)
    reading.knob("prefetch_factor", reading.count("dataloader_prefetch_factor"))
    pinned = reading.flag("dataloader_pin_memory")
    reading.knob("pin_memory", True if pinned is None else pinned)
    packed, grouped = reading.flag("sample_packing"), reading.flag("group_by_length")
    if packed and grouped:
        reading.problem("group_by_length", "with sample_packing there are no lengths left to group by: switch one off")
    if packed:
        reading.knob("batching", "packed", unless_sure="packed rows hold other tokens than axolotl's: re-measure")
    elif grouped:
        reading.knob("batching", "length-grouped", unless_sure="sorted inside each global batch here, not across steps")
    reading.use(("eval_sample_packing", "pad_to_sequence_len"))


def _data(reading: Reading) -> None:
    read_text(reading, lengths=("sequence_len",), files=(), hubs=())
    sets = reading.value("datasets")
    names = [str(each.get("path")) for each in sets if isinstance(each, Mapping)] if isinstance(sets, list) else []
    if names:
        reading.note(f"datasets ({', '.join(names)}): read from local files here, without axolotl's prompt templates; "
                     "save the finished text, or use `kind: script`")  # fmt: skip
