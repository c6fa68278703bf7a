"""Tokenizers: found, loaded without running anybody's code, or trained on the study's own text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives.contract import ObjectiveError
from objectives.data.documents import Corpus
from objectives.pretrained import download, refuse_foreign_code

TRAINING_BYTES = 20 * 2**20
"""Text a tokenizer is trained on at most: 12 MB of sources take about 6 s on two cores."""
END_OF_TEXT = "<|endoftext|>"
_FILES = ("*.json", "*.model", "*.txt", "*.jinja")
_BASE_VOCABULARY = 257
"""Every byte and the end-of-text token."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSource:
    """Where a tokenizer comes from; exactly one is set.

    Attributes:
        folder: A local folder with its files.
        hub: A name on the Hugging Face hub; the only source that downloads.
        train_vocabulary: Size of a vocabulary to train on the study's text.
    """

    folder: Path | None = None
    hub: str | None = None
    train_vocabulary: int | None = None


def tokenizer_source(asked: str | Mapping[str, Any], folder: Path) -> TokenizerSource:
    """What ``data.tokenizer`` means. A plain name that is no folder is a hub name.

    Raises:
        ObjectiveError: It means nothing that exists or can be made.
    """
    if isinstance(asked, Mapping):
        return _from_mapping(asked, folder)
    place = Path(asked).expanduser()
    place = place if place.is_absolute() else folder / place
    if place.is_dir():
        return TokenizerSource(folder=place)
    if asked.startswith((".", "/", "~")) or asked.count("/") > 1:
        raise ObjectiveError(f"objective.data.tokenizer: no folder {place}")
    return TokenizerSource(hub=asked)


def _from_mapping(asked: Mapping[str, Any], folder: Path) -> TokenizerSource:
    if len(asked) == 1 and isinstance(asked.get("path"), str):
        source = tokenizer_source(asked["path"], folder)
        if source.folder is None:
            raise ObjectiveError(f"objective.data.tokenizer.path: no folder {folder / asked['path']}")
        return source
    if len(asked) == 1 and isinstance(asked.get("hub"), str):
        return TokenizerSource(hub=asked["hub"])
    train = asked.get("train")
    size = train.get("vocab_size") if isinstance(train, Mapping) and len(train) == 1 else None
    if len(asked) != 1 or not isinstance(size, int) or isinstance(size, bool) or size <= _BASE_VOCABULARY:
        raise ObjectiveError(
            f"objective.data.tokenizer: {dict(asked)!r} is none of ./folder, a hub name, or "
            f"{{train: {{vocab_size: n}}}} with n above {_BASE_VOCABULARY}"
        )
    return TokenizerSource(train_vocabulary=size)


def local_folder(source: TokenizerSource, made: Path | None = None) -> Path:
    """The folder with the tokenizer's files; a hub tokenizer is downloaded (its data files only) if it is not here yet.

    Args:
        source: Where it comes from.
        made: Where a trained one was saved.
    """
    if source.hub is not None:
        return download(source.hub, _FILES, "objective.data.tokenizer")
    place = source.folder or made
    assert place is not None, "a trained tokenizer has a folder by now"
    return place


def load_tokenizer(folder: Path) -> Any:
    """The transformers tokenizer of a local folder. Reads files only: nothing is downloaded, no foreign code runs.

    Raises:
        ObjectiveError: The folder holds no tokenizer, or one that wants its own code.
    """
    from transformers import AutoTokenizer

    refuse_foreign_code(folder, "objective.data.tokenizer")
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, TypeError, KeyError, ImportError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ObjectiveError(f"objective.data.tokenizer: {folder} holds no usable tokenizer: {reason}") from error


def encode(tokenizer: Any, texts: Sequence[str], sequence_length: int) -> list[list[int]]:
    """Token ids of each text, cut at ``sequence_length``. The one place text becomes tokens, on the fly or ahead."""
    encoded = tokenizer(
        list(texts),
        truncation=True,
        max_length=sequence_length,
        return_attention_mask=False,
        return_token_type_ids=False,
    )
    ids: list[list[int]] = encoded["input_ids"]
    return ids


_THREADS = "TOKENIZERS_PARALLELISM"


def one_thread() -> None:
    """Keeps the tokenizer from its own threads: they do not survive a fork, and a loader worker would wait for ever."""
    os.environ[_THREADS] = "false"  # said outright: unset, the library warns at every fork (case E04)


@contextmanager
def all_threads() -> Iterator[None]:
    """Lets the tokenizer use its threads within; afterwards none, so that this process may still fork."""
    os.environ[_THREADS] = "true"
    try:
        yield
    finally:
        one_thread()


def train_tokenizer(corpus: Corpus, vocab_size: int, folder: Path) -> None:
    """Trains a byte-level BPE tokenizer and saves a folder transformers loads. The same text gives the same one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (text.encode("utf-8", "replace").decode() for text in corpus.documents(limit_bytes=TRAINING_BYTES))
    tokenizer.train_from_iterator(texts, trainer=trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT)
    wrapped.save_pretrained(str(folder))
