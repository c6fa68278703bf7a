"""The keys of ``objective``, by kind. Shapes are judged here; whether files and models exist, at preparation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from tuner.errors import SpecProblem
from tuner.spec.keys import LARGEST_INTEGER, Keys, nearest_fix, one_of, refuse, written_choice
from tuner.spec.script_keys import ScriptKeys
from tuner.spec.shape import check_shape, line_of, shown
from tuner.spec.yaml_text import KeyPath, dotted

FORMATS = ("auto", "text", "jsonl", "parquet", "tokens")
TOKEN_DTYPES = ("uint16", "uint32", "int32", "int64")
_OWN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _filled(value: str) -> str:
    if not value.strip():
        raise refuse("the text is empty", "Write a path or a name")
    return value


def _paths(value: Any) -> Any:
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, str) and part.strip() for part in parts):
        raise refuse(
            f"{shown(value)} is not a path", "Write a path, a pattern such as 'corpus/*.jsonl', or a list of them"
        )
    return value


def _tokenizer(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        return value
    size = value.get("train", {}).get("vocab_size") if _is_training(value) else None
    if type(size) is not int or not 1 < size <= 10_000_000:
        raise refuse(f"{shown(value)} is not a tokenizer", "Write a folder, a hub name, or {train: {vocab_size: 4096}}")
    return value


def _is_training(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"train"} and isinstance(value["train"], dict)


def _modules(value: Any) -> Any:
    if value == "all-linear" or (isinstance(value, list) and value and all(isinstance(v, str) and v for v in value)):
        return value
    raise refuse(f"{shown(value)} does not name modules", "Write [q_proj, v_proj], or all-linear")


Filled = Annotated[str, AfterValidator(_filled)]
Whole = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]


class ModelKeys(Keys):
    """``objective.model``."""

    written: ClassVar[dict[str, str]] = {"config": "mapping", "path": "path", "hub": "text", "revision": "text"}
    config: dict[str, Any] | None = Field(
        default=None,
        description="A transformers configuration with its `model_type`; the weights are random, from the seed.",
    )
    path: Filled | None = Field(default=None, description="A local model folder (safetensors only).")
    hub: Filled | None = Field(default=None, description="A name on the Hugging Face hub; only this downloads.")
    revision: Filled | None = Field(default=None, description="Of a hub name: a branch, tag or commit.")


class TextKeys(Keys):
    """``objective.data`` of ``causal_lm``."""

    written: ClassVar[dict[str, str]] = {
        "path": "path, pattern or list of them",
        "sequence_length": "integer",
        "tokenizer": "folder, hub name or `{train: {vocab_size: 4096}}`",
        "format": written_choice(FORMATS),
        "text_field": "text",
        "dtype": written_choice(TOKEN_DTYPES),
        "sample_bytes": "integer",
    }
    path: Annotated[Any, AfterValidator(_paths)] = Field(
        description="What is read: files, folders or patterns; `stdlib` is the source text of Python's own library."
    )
    sequence_length: int = Field(ge=2, le=LARGEST_INTEGER, description="Tokens per sample at most.")
    tokenizer: Annotated[Any, AfterValidator(_tokenizer)] = Field(
        default=None, description="Left out: the model folder's own, or none at all for `tokens`."
    )
    format: Annotated[str, AfterValidator(one_of(FORMATS))] = Field(
        default="auto", description="`auto` goes by each file's ending."
    )
    text_field: Filled = Field(
        default="text", description="Field (JSON lines) or column (Parquet) that holds the text."
    )
    dtype: Annotated[str, AfterValidator(one_of(TOKEN_DTYPES))] = Field(
        default="uint16", description="Element type of raw `.bin` token files."
    )
    sample_bytes: Whole = Field(
        default=64 * 2**20, description="Source bytes read at most: trials need a sample, not the corpus."
    )


class PictureKeys(Keys):
    """``objective.data`` of ``image_classifier``."""

    written: ClassVar[dict[str, str]] = {"path": "path", "image_size": "integer", "sample_files": "integer"}
    path: Filled = Field(description="A folder with one folder of pictures per class.")
    image_size: Whole = Field(default=224, description="Height and width in pixels after resizing and cropping.")
    sample_files: Whole = Field(default=20_000, description="Pictures used at most.")


class LoraKeys(Keys):
    """``objective.lora``."""

    written: ClassVar[dict[str, str]] = {"r": "integer", "alpha": "number", "target_modules": "list, or `all-linear`"}
    r: Whole = Field(description="Rank of the adapters.")
    alpha: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="Scale; left out: 2 x `r`.")
    target_modules: Annotated[Any, AfterValidator(_modules)] = Field(
        default=None, description="Modules that get adapters; left out: peft's choice for the model."
    )


class CausalLMKeys(Keys):
    """``objective`` of kind ``causal_lm``."""

    written: ClassVar[dict[str, str]] = {
        "kind": "`causal_lm`",
        "model": "mapping",
        "data": "mapping",
        "lora": "mapping",
    }
    kind: str = Field(description="A transformers causal language model on text.")
    model: ModelKeys = Field(description="Exactly one of `config`, `path` and `hub`.")
    data: TextKeys = Field(description="What it is trained on.")
    lora: LoraKeys | None = Field(default=None, description="Train adapters by peft instead of all weights.")


class ImageClassifierKeys(Keys):
    """``objective`` of kind ``image_classifier``."""

    written: ClassVar[dict[str, str]] = {"kind": "`image_classifier`", "model": "mapping", "data": "mapping"}
    kind: str = Field(description="A transformers image classifier on pictures.")
    model: ModelKeys = Field(description="Exactly one of `config`, `path` and `hub`.")
    data: PictureKeys = Field(description="What it is trained on.")


class OwnKeys(Keys):
    """``objective`` of kind ``package.module:name``."""

    written: ClassVar[dict[str, str]] = {"kind": '`"package.module:name"`', "settings": "mapping"}
    kind: str = Field(description="Your own objective; the module may stand beside the spec.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Keyword arguments of your class, as they are.")


FOREIGN: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("auto_map", "custom_pipelines"), ("it names Python code to download and run", "Remove it")),
    "trust_remote_code": ("foreign code never runs here", "Remove it"),
    **dict.fromkeys(
        ("attn_implementation", "_attn_implementation"),
        ("attention is a knob", "Use the knob 'attention' in search or baseline"),
    ),
}
"""Keys of a model's configuration that are not taken, with reason and fix."""

KINDS: Mapping[str, type[Keys]] = {
    "causal_lm": CausalLMKeys,
    "image_classifier": ImageClassifierKeys,
    "script": ScriptKeys,
}
"""Keys of the built-in objectives."""


def check_objective(
    values: Mapping[str, Any] | None, *, lines: Mapping[KeyPath, int]
) -> tuple[tuple[str, dict[str, Any]], list[SpecProblem]]:
    """Kind and settings (the class's keyword arguments) of the objective, and every problem with it.

    Args:
        values: What stands under ``objective``; None where that is missing or no mapping (said elsewhere).
        lines: Line by path.
    """
    if values is None:
        return ("", {}), []
    kind = values.get("kind")
    found = _kind_problem(kind, "kind" in values)
    if found is not None:
        line = line_of(("objective", "kind"), lines)
        return ("", {}), [SpecProblem(where="objective.kind", reason=found[0], fix=found[1], line=line)]
    own = kind not in KINDS
    given = {key: {} if key == "data" and value is None else value for key, value in values.items()}
    _, problems = check_shape(OwnKeys if own else KINDS[str(kind)], given, at=("objective",), lines=lines)
    if not own:
        problems += _model_problems(values.get("model"), lines)
    settings = values.get("settings") if own else _without_empty(values)
    return (str(kind), dict(settings) if isinstance(settings, dict) else {}), problems


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a built-in objective; a key without a value counts as left out."""
    found = {name: value for name, value in values.items() if name != "kind" and value is not None}
    return {
        name: {key: inner for key, inner in value.items() if inner is not None} if isinstance(value, dict) else value
        for name, value in found.items()
    }


def _kind_problem(kind: Any, given: bool) -> tuple[str, str] | None:
    known = (*KINDS, "'package.module:name' for your own")
    if not given:
        return "the key 'kind' is missing", f"Add 'kind: ...', one of {', '.join(known)}"
    if isinstance(kind, str) and (kind in KINDS or _OWN.fullmatch(kind)):
        return None
    if isinstance(kind, str) and ":" in kind:
        return f"{shown(kind)} does not name a class", "Write 'package.module:name', a name in a module, without '.py'"
    near = nearest_fix(str(kind), tuple(KINDS))
    return (
        f"unknown objective {shown(kind)}",
        f"{near if near.startswith('Did') else ''} Known: {', '.join(known)}".strip(),
    )


def _model_problems(model: Any, lines: Mapping[KeyPath, int]) -> list[SpecProblem]:
    if not isinstance(model, dict):
        return []
    path: KeyPath = ("objective", "model")
    found = [(path, reason, fix) for reason, fix in _source_problems(model)]
    if isinstance(model.get("config"), dict):
        found += [((*path, "config", *at), reason, fix) for at, reason, fix in _config_problems(model["config"])]
    return [SpecProblem(where=dotted(at), reason=reason, fix=fix, line=line_of(at, lines)) for at, reason, fix in found]


def _source_problems(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    given = [name for name in ("config", "path", "hub") if model.get(name) is not None]
    if len(given) != 1:
        which = f"{' and '.join(given)} each name" if given else "nothing names"
        return [(f"{which} the model, and exactly one of config, path and hub must", "Keep or add one of them")]
    if model.get("revision") is not None and given != ["hub"]:
        return [("a revision belongs to a hub name", "Remove 'revision'")]
    return []


def _config_problems(config: Mapping[str, Any]) -> list[tuple[KeyPath, str, str]]:
    found: list[tuple[KeyPath, str, str]] = []
    if not isinstance(config.get("model_type"), str):
        reason = "the configuration does not say which model it is of"
        found.append(((), reason, "Add 'model_type: llama', or another of transformers"))
    return found + [
        (path, f"{path[-1]!r} is refused: {reason}", fix)
        for path, value in _nested(config)
        if value is not None and (refused := FOREIGN.get(str(path[-1]))) is not None
        for reason, fix in (refused,)
    ]


def _nested(values: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for name, value in values.items():
        yield (*above, name), value
        if isinstance(value, dict):
            yield from _nested(value, (*above, name))
