"""The ``data`` keys of the built-in objectives, checked in the user's words. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from objectives.contract import ObjectiveError

FORMATS = ("auto", "text", "jsonl", "parquet", "tokens")
TOKEN_DTYPES = ("uint16", "uint32", "int32", "int64")
MEBIBYTE = 2**20


@dataclass(frozen=True, kw_only=True)
class TextData:
    """What a language model reads.

    Attributes:
        path: A file, a folder, a pattern (``corpus/*.jsonl``), a list of these, or ``stdlib``: the sources of Python's
            own standard library, which every machine has.
        sequence_length: Tokens per sample at most; documents are cut into pieces of about this length.
        tokenizer: A folder, a hub name, or ``{train: {vocab_size: n}}`` for one trained on this text. None: the
            model's own folder, or none at all for ``tokens``.
        format: ``auto`` goes by each file's ending.
        text_field: The field (JSON lines) or column (Parquet) that holds the text.
        dtype: Element type of raw ``.bin`` token files; ``.npy`` files say it themselves.
        sample_bytes: Source bytes read at most. A trial needs a sample, not the corpus; the first study of a corpus
            pays about a second for 5 MB.
    """

    path: str | list[str]
    sequence_length: int
    tokenizer: str | Mapping[str, Any] | None = None
    format: str = "auto"
    text_field: str = "text"
    dtype: str = "uint16"
    sample_bytes: int = 64 * MEBIBYTE

    def __post_init__(self) -> None:
        """Refuses values that cannot work."""
        _one_of("format", self.format, FORMATS)
        _one_of("dtype", self.dtype, TOKEN_DTYPES)
        _whole("sequence_length", self.sequence_length, lowest=2)
        _whole("sample_bytes", self.sample_bytes, lowest=1)
        _paths(self.path)


@dataclass(frozen=True, kw_only=True)
class ImageData:
    """What an image classifier reads.

    Attributes:
        path: A folder with one folder of pictures per class.
        image_size: Height and width in pixels after resizing and cropping.
        sample_files: Pictures used at most.
    """

    path: str
    image_size: int = 224
    sample_files: int = 20_000

    def __post_init__(self) -> None:
        """Refuses values that cannot work."""
        _whole("image_size", self.image_size, lowest=1)
        _whole("sample_files", self.sample_files, lowest=1)
        _paths(self.path)


Settings = TypeVar("Settings", TextData, ImageData)


def read_settings(cls: type[Settings], values: Any) -> Settings:
    """The settings of a ``data`` mapping.

    Raises:
        ObjectiveError: A key is unknown or missing, or a value cannot work.
    """
    if not isinstance(values, Mapping):
        raise ObjectiveError(f"objective.data: expected keys like `path`, found {values!r}")
    known = [field.name for field in fields(cls)]
    unknown = [str(name) for name in values if name not in known]
    if unknown:
        raise ObjectiveError(f"objective.data: unknown {', '.join(unknown)}. Known keys: {', '.join(known)}")
    try:
        return cls(**values)
    except TypeError as error:
        raise ObjectiveError(f"objective.data: {str(error).split('__init__() ')[-1]}") from error


def _one_of(name: str, value: Any, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise ObjectiveError(f"objective.data.{name}: {value!r} is not one of {', '.join(legal)}")


def _whole(name: str, value: Any, *, lowest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise ObjectiveError(f"objective.data.{name}: expected a whole number of at least {lowest}, found {value!r}")


def _paths(value: Any) -> None:
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise ObjectiveError(f"objective.data.path: expected a path, a pattern or a list of them, found {value!r}")
