"""Models and configurations by config, local folder or hub name: weights are safetensors, foreign code never runs."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.config_keys import require_known_keys
from objectives.contract import ObjectiveError

if TYPE_CHECKING:
    import torch

MODEL_FILES = ("*.safetensors", "*.json", "*.model", "*.txt", "*.jinja")
"""What a download takes: no pickled weights, no code."""
_FOREIGN = {
    "auto_map": "it names Python code to download and run",
    "trust_remote_code": "foreign code never runs here",
    "custom_pipelines": "it names Python code to download and run",
}
_ATTENTION_KEYS = ("attn_implementation", "_attn_implementation")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Where a model comes from; exactly one of the first three is set.

    Attributes:
        config: Keys of a transformers configuration, ``model_type`` among them; weights start random.
        folder: A local folder with ``config.json`` and safetensors weights.
        hub: A name on the Hugging Face hub; the only source that downloads.
        revision: Commit, branch or tag of the hub name; None for the newest.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    hub: str | None = None
    revision: str | None = None


def model_source(asked: Any, folder: Path) -> ModelSource:
    """What ``objective.model`` means. Relative paths start at ``folder``.

    Raises:
        ObjectiveError: It is none of the three ways, or the configuration wants foreign code.
    """
    keys = set(asked) if isinstance(asked, Mapping) else set()
    if keys == {"config"} and isinstance(asked["config"], Mapping) and "model_type" in asked["config"]:
        _refuse_keys(asked["config"], "objective.model.config")
        return ModelSource(config=asked["config"])
    if keys == {"path"} and isinstance(asked["path"], str):
        return ModelSource(folder=(folder / Path(asked["path"]).expanduser()).resolve())
    if keys in ({"hub"}, {"hub", "revision"}) and all(isinstance(value, str) for value in asked.values()):
        return ModelSource(hub=asked["hub"], revision=asked.get("revision"))
    raise ObjectiveError(
        f"objective.model: {asked!r} is none of {{config: {{model_type: llama, ...}}}}, {{path: ./folder}} and "
        "{hub: name}"
    )


def _refuse_keys(values: Mapping[str, Any], where: str) -> None:
    for name, value in _nested(values):
        if name in _FOREIGN and value is not None:
            raise ObjectiveError(f"{where}: `{name}` is refused: {_FOREIGN[name]}")
        if name in _ATTENTION_KEYS and "/" in str(value):
            raise ObjectiveError(f"{where}: `{name}: {value}` is refused: it names a kernel to download and run")


def _nested(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        yield name, value
        if isinstance(value, Mapping):
            yield from _nested(value)


def refuse_foreign_code(folder: Path, where: str) -> None:
    """Looks into every JSON configuration of a model or tokenizer folder.

    Raises:
        ObjectiveError: There is no such folder, or a file of it names code to run or an adapter's other model.
    """
    if not folder.is_dir():
        raise ObjectiveError(f"{where}: no folder {folder}")
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        if (folder / name).is_file():
            _refuse_keys(_read_json(folder / name, where), f"{where}: {folder / name}")
    if (folder / "adapter_config.json").is_file():
        raise ObjectiveError(
            f"{where}: {folder} is an adapter, not a model: merge it into its model, or give the model and `lora`"
        )


def _read_json(file: Path, where: str) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ObjectiveError(f"{where}: {file} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ObjectiveError(f"{where}: {file} holds no JSON object")
    return values


def check_model_folder(folder: Path) -> None:
    """Raises ``ObjectiveError`` unless the folder holds a configuration, safetensors weights and no foreign code."""
    where = "objective.model.path"
    refuse_foreign_code(folder, where)
    if not (folder / "config.json").is_file():
        raise ObjectiveError(f"{where}: {folder} has no config.json")
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLED)
    found = f"only {', '.join(pickled)}, which unpickling could make run anything" if pickled else "none"
    raise ObjectiveError(
        f"{where}: {folder} has no safetensors weights ({found}). Save the model again with `save_pretrained`, which "
        "writes safetensors"
    )


def download(name: str, patterns: Sequence[str], where: str, revision: str | None = None) -> Path:
    """The local snapshot of a hub repository: what is cached is used, the rest is downloaded.

    Raises:
        ObjectiveError: No such repository, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ObjectiveError(f"{where}: {name!r} is no folder here and cannot be had from the hub: {reason}") from error


def opened(source: ModelSource, facts: Mapping[str, Any] | None = None) -> ModelSource:
    """The source with a hub name resolved to the folder that preparation downloaded it to.

    Args:
        source: As the spec names it.
        facts: What preparation found (``model_folder``); None downloads what is not there yet.

    Raises:
        ObjectiveError: No such repository, or the hub cannot be reached.
    """
    if source.hub is None:
        return source
    known = None if facts is None else facts.get("model_folder")
    place = Path(known) if known else download(source.hub, MODEL_FILES, "objective.model.hub", source.revision)
    return replace(source, hub=None, folder=place)


def count_parameters(auto_class: Any, config: Any, source: ModelSource) -> int:
    """Number of parameters, from the ``meta`` device: no weight is read or made."""
    import torch

    model = make_model(auto_class, config, source, torch.device("meta"), 0)
    return sum(parameter.numel() for parameter in model.parameters())


def read_config(source: ModelSource) -> Any:
    """The transformers configuration of a config or a local folder (a hub model's downloaded one).

    Raises:
        ObjectiveError: Unknown ``model_type`` (the message names similar ones), or values the model refuses.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    if source.folder is not None:
        check_model_folder(source.folder)
        return AutoConfig.from_pretrained(str(source.folder), local_files_only=True, trust_remote_code=False)
    values = dict(source.config)
    kind = values.pop("model_type")
    try:
        return AutoConfig.for_model(kind, **values)
    except ValueError as error:
        if "model identifier" not in str(error):
            raise ObjectiveError(f"objective.model.config: {kind} refuses these values: {error}") from error
        raise ObjectiveError(f"objective.model.config.model_type: unknown {kind!r}{_similar(kind)}") from error
    except (TypeError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise ObjectiveError(f"objective.model.config: {kind} refuses these values: {reason}") from error


def refuse_unknown_keys(source: ModelSource) -> None:
    """Raises ``ObjectiveError`` for a misspelt key of a configuration from the spec (a folder's own is left alone)."""
    if source.folder is None:
        require_known_keys(read_config(source), source.config)


def _similar(kind: object) -> str:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    close = difflib.get_close_matches(str(kind), list(CONFIG_MAPPING_NAMES))
    return f". Did you mean {' or '.join(close)}?" if close else ": transformers does not know it"


def make_model(auto_class: Any, config: Any, source: ModelSource, device: torch.device, seed: int) -> Any:
    """The model in fp32 on the device; random weights come from ``seed``. On ``meta`` no weight is read.

    Raises:
        ObjectiveError: This kind of model does not do this task, or its values contradict each other.
    """
    import torch

    torch.manual_seed(seed)
    try:
        if source.folder is None or device.type == "meta":
            with torch.device(device):
                return auto_class.from_config(config, dtype=torch.float32, trust_remote_code=False)
        return auto_class.from_pretrained(
            str(source.folder),
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        ).to(device)
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ObjectiveError(f"objective.model: {config.model_type} cannot be built: {reason}") from error
