"""What a template imports before it forks, so that children need not. Torch-free, transformers-free: names only."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from objectives.contract import BUILT_IN, SCRIPT, ObjectiveReference

_ALWAYS = (
    "torch.utils.data",
    "torch.utils.checkpoint",
    "torch._dynamo",  # the first optimizer of a process imports it: more than a second in every child
    "numpy",
    "objectives.trial.training_loop",
)
_BUILT_IN = {
    "causal_lm": (
        "transformers.models.auto.modeling_auto",
        "transformers.models.auto.tokenization_auto",
        "transformers.tokenization_utils_tokenizers",
        "transformers.modeling_layers",
        "objectives.data.collate",
        "objectives.chunked_loss",
        "objectives.packing_check",
    ),
    "image_classifier": ("transformers.models.auto.modeling_auto", "transformers.modeling_layers", "PIL.ImageOps"),
}


def preload_modules(reference: ObjectiveReference) -> tuple[str, ...]:
    """Modules to import for an objective, in order. Each exists; importing them starts no thread and touches no device.

    Nothing for a script: its leader loads no torch. A user's own objective (and its module's imports) comes last. Never
    in this list: pyarrow (starts a thread at its import; only preparation needs it) and ``transformers.trainer``
    (likewise).
    """
    if reference.kind == SCRIPT:
        return ()
    module = BUILT_IN.get(reference.kind, reference.kind).partition(":")[0]
    if reference.kind not in BUILT_IN:
        return (*_ALWAYS, module)
    family = model_family(reference.settings.get("model"), Path(reference.folder))
    adapters = ("peft",) if reference.settings.get("lora") else ()
    return (*_ALWAYS, *_BUILT_IN[reference.kind], *family, *adapters, module)


def import_model_code(reference: ObjectiveReference) -> None:
    """Imports what a warm template would have imported; costs nothing in its children. What fails here fails later."""
    for name in preload_modules(reference):
        with suppress(ImportError):
            importlib.import_module(name)


def model_family(model: Any, folder: Path) -> tuple[str, ...]:
    """The transformers modules of a ``model`` mapping; empty where its family is not known yet (a hub name)."""
    kind = _model_type(model, folder)
    if kind is None:
        return ()
    family = kind.replace("-", "_")
    return tuple(
        f"transformers.models.{family}.{part}_{family}"
        for part in ("configuration", "modeling")
        if _is_in_transformers(f"models/{family}/{part}_{family}.py")
    )


def _model_type(model: Any, folder: Path) -> str | None:
    if not isinstance(model, Mapping):
        return None
    values = model.get("config")
    if isinstance(model.get("path"), str):
        try:
            values = json.loads((folder / model["path"] / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
    kind = values.get("model_type") if isinstance(values, Mapping) else None
    return kind if isinstance(kind, str) and kind.replace("-", "_").isidentifier() else None


def _is_in_transformers(name: str) -> bool:
    found = importlib.util.find_spec("transformers")
    places = found.submodule_search_locations if found is not None else None
    return any((Path(place) / name).is_file() for place in places or ())
