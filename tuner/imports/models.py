"""Model, text and adapters, which every front-end calls by names of its own. What is not on this machine is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.imports.imported import Reading, local_or_hub

WORDS_OF_ALL = ("all", "all-linear", "all_linear")


def read_model(reading: Reading, *names: str) -> None:
    """A local folder or a name on the hub."""
    name = reading.word(*names)
    if name is None:
        return
    model = local_or_hub(name, reading.source.path.parent)
    revision = reading.word("model_revision", "revision_of_model")
    reading.put(model=model | ({"revision": revision} if revision and "hub" in model else {}))


def read_text(reading: Reading, *, lengths: Sequence[str], files: Sequence[str], hubs: Sequence[str]) -> None:
    """Local files and the longest row. A data set of the hub is no file: it has to be given as one."""
    data: dict[str, Any] = {}
    found = reading.value(*files) if files else None
    if isinstance(found, str) or (isinstance(found, list) and all(isinstance(each, str) for each in found)):
        data["path"] = found
    elif (name := reading.word(*hubs) if hubs else None) is not None:
        reading.note(f"the data set {name} is read from local files here (text, JSON lines or Parquet): save it as one")
    if (length := reading.count(*lengths, least=2) if lengths else None) is not None:
        data["sequence_length"] = length
    if (name := reading.word("tokenizer_name", "tokenizer_name_or_path")) is not None:
        data["tokenizer"] = name
    if (name := reading.word("dataset_text_field")) not in (None, "text"):
        data["text_field"] = name
    reading.put(data=data or None)


def read_lora(reading: Reading, *, on: bool) -> None:
    """Adapters by peft; a quantized base is not trained here."""
    rank = reading.count("lora_r", "lora_rank")
    alpha = reading.number("lora_alpha")
    targets = _targets(reading)
    if on:
        made = {"r": rank or 8, "alpha": alpha, "target_modules": targets}
        reading.put(lora={name: value for name, value in made.items() if value is not None})
    if reading.flag("load_in_4bit") or reading.flag("load_in_8bit") or reading.value("quantization_bit"):
        reading.note("a quantized base model is not trained here: trials hold it in 16 or 32 bits and need more memory")


def _targets(reading: Reading) -> Any:
    if reading.flag("lora_target_linear"):
        return "all-linear"
    given = reading.value("lora_target_modules", "lora_target")
    if isinstance(given, str):
        return "all-linear" if given in WORDS_OF_ALL else [part.strip() for part in given.split(",") if part.strip()]
    return given if isinstance(given, list) and given else None


def beside(path: Path, name: str) -> Path:
    """A file that a configuration names, from the configuration's folder."""
    return path.parent / name
