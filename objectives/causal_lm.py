"""The built-in ``causal_lm``: any transformers causal language model on text, JSON lines, Parquet or tokens.

The loss is the next-token cross-entropy alone: a mixture-of-experts model's balancing loss is not added.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from objectives.contract import ObjectiveError
from objectives.data.batching import BATCHINGS
from objectives.data.language import LanguageData, data_key, language_tokenizer, prepare_language
from objectives.data.prepared import need_facts, read_facts, settings_key, write_json
from objectives.data.settings import TextData, read_settings
from objectives.data.tokenizer import load_tokenizer, local_folder
from objectives.model_shape import model_shape
from objectives.pretrained import (
    ModelSource,
    count_parameters,
    make_model,
    model_source,
    opened,
    read_config,
    refuse_unknown_keys,
)
from objectives.transformers_model import attention_of, attention_setter, checkpoint_layers

if TYPE_CHECKING:
    import torch
    from torch import nn

    from objectives.contract import Batch, Unit
    from objectives.data.collate import Collator

_LORA_KEYS = ("r", "alpha", "target_modules")
_PACKED_INPUTS = ("input_ids", "position_ids")


class CausalLM:
    """Makes language-model workloads. Settings are checked here; files, model and data only when they are needed.

    Args:
        model: ``{config: {model_type: ..., ...}}``, ``{path: ./folder}`` or ``{hub: name}``. A config without
            ``vocab_size`` takes the tokenizer's.
        data: Keys of :class:`~objectives.data.settings.TextData`.
        lora: ``{r, alpha, target_modules}``: train low-rank adapters by peft instead of the whole model.
        folder: Where relative paths start.
        cache: Where ``prepare`` has left its results.
    """

    unit: Unit = "tokens"

    def __init__(
        self,
        *,
        model: Any,
        data: Mapping[str, Any],
        lora: Mapping[str, Any] | None = None,
        folder: str = ".",
        cache: str = "",
    ) -> None:
        self._folder = Path(folder)
        self._cache = cache
        self._source = model_source(model, self._folder)
        self._data = read_settings(TextData, data)
        self._lora = _check_lora(lora)
        self._key = settings_key("causal_lm", dict(model), data_key(self._data), str(self._folder.resolve()))

    def prepare(self, cache: Path) -> dict[str, Any]:
        """Trains or fetches the tokenizer, indexes and tokenizes a sample of the data, downloads a hub model.

        Starts the tokenizer's threads: run it in a process of its own, once per study and corpus. Returns the JSON
        facts of :func:`~objectives.data.language.prepare_language` with ``model_folder``, ``model_type`` and
        ``parameters``.

        Raises:
            ObjectiveError: Model, tokenizer and data cannot be used, or not together.
        """
        from transformers import AutoModelForCausalLM

        source = opened(self._source)
        refuse_unknown_keys(source)
        facts = prepare_language(self._data, folder=self._folder, cache=cache, model_folder=source.folder)
        facts["model_folder"] = None if source.folder is None else str(source.folder)
        config = self._config(source, facts)
        largest = max(facts["largest_token"], (facts["tokenizer"] or {"vocab_size": 0})["vocab_size"] - 1)
        vocabulary = config.get_text_config().vocab_size
        if largest >= vocabulary:
            raise ObjectiveError(
                f"objective.model: a vocabulary of {vocabulary} is too small for token {largest} of this tokenizer or "
                "data: leave `vocab_size` out, or make it larger"
            )
        facts["model_type"] = str(config.model_type)
        facts["model_shape"] = model_shape(config.to_dict())
        facts["parameters"] = count_parameters(AutoModelForCausalLM, config, source)
        write_json(cache / f"{self._key}.json", facts)
        return facts

    def build(self, device: torch.device, seed: int) -> LanguageWorkload:
        """The model in fp32 on the device, weights from ``seed``. On ``meta`` no weights are read or made."""
        from transformers import AutoModelForCausalLM

        facts = read_facts(self._cache, self._key)
        source = opened(self._source, facts)
        config = self._config(source, facts)
        config.use_cache = False
        base = make_model(AutoModelForCausalLM, config, source, device, seed)
        base.train()
        return LanguageWorkload(
            model=base if self._lora is None else _with_adapters(base, self._lora),
            base=base,
            settings=self._data,
            data=self._open_data,
            facts=facts or {},
        )

    def _open_data(self) -> LanguageData:
        facts = need_facts(self._cache, self._key)
        return LanguageData(facts=facts, sequence_length=self._data.sequence_length, dtype=self._data.dtype)

    def _config(self, source: ModelSource, facts: Mapping[str, Any] | None) -> Any:
        if source.folder is None and "vocab_size" not in source.config:
            source = replace(source, config={**source.config, "vocab_size": self._vocabulary(facts)})
        config = read_config(source)
        limit = getattr(config, "max_position_embeddings", None)
        wanted = self._data.sequence_length
        if not isinstance(limit, int) or limit >= wanted:
            return config
        name = config.attribute_map.get("max_position_embeddings", "max_position_embeddings")
        if source.folder is None and not {name, "max_position_embeddings"} & set(source.config):
            return read_config(replace(source, config={**source.config, name: wanted}))
        raise ObjectiveError(
            f"objective.data.sequence_length: {wanted} tokens, but the model has positions for {limit} (`{name}`)"
        )

    def _vocabulary(self, facts: Mapping[str, Any] | None) -> int:
        if facts is not None and facts["tokenizer"]:
            return int(facts["tokenizer"]["vocab_size"])
        tokenizer = language_tokenizer(self._data, folder=self._folder, model_folder=None)
        if tokenizer is None:
            raise ObjectiveError("objective.model.config: give `vocab_size`: without a tokenizer nothing else says it")
        return tokenizer.train_vocabulary or len(load_tokenizer(local_folder(tokenizer)))


def _check_lora(lora: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if lora is None:
        return None
    if not isinstance(lora, Mapping) or not set(lora) <= set(_LORA_KEYS) or "r" not in lora:
        raise ObjectiveError(f"objective.lora: {lora!r} has not the keys {', '.join(_LORA_KEYS)} (`r` at least)")
    return lora


def _with_adapters(base: Any, lora: Mapping[str, Any]) -> Any:
    from peft import LoraConfig, get_peft_model

    try:
        config = LoraConfig(
            r=lora["r"],
            lora_alpha=lora.get("alpha", 2 * lora["r"]),
            target_modules=lora.get("target_modules"),
            task_type="CAUSAL_LM",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name that is on its way out
            return get_peft_model(base, config)
    except (ValueError, TypeError) as error:
        raise ObjectiveError(f"objective.lora: {str(error).strip().splitlines()[0]}") from error


class LanguageWorkload:
    """A causal language model with its data, by the contract. Optional methods exist where the model or data has them.

    Attributes:
        model: What is called: the transformers model, or peft's around it.
        attention: Name of the attention implementation in effect.
        batching: ``padded``, ``length-grouped`` or ``packed``.
        tokens: ``on-the-fly`` or ``cached``.
    """

    checkpoint_blocks: Callable[[], list[nn.Module]]
    set_attention: Callable[[str], None]
    set_tokens: Callable[[str], None]

    def __init__(
        self,
        *,
        model: Any,
        base: Any,
        settings: TextData,
        data: Callable[[], LanguageData],
        facts: Mapping[str, Any],
    ) -> None:
        self.model = model
        self.batching, self.tokens = "padded", "on-the-fly"
        self._base, self._settings, self._open_data, self._facts = base, settings, data, facts
        self._head: nn.Module | None = None
        self._fill = int((facts.get("tokenizer") or {"fill_token": 0})["fill_token"])
        self._add_optional_methods()

    def _add_optional_methods(self) -> None:
        layers, switch = checkpoint_layers(self._base), attention_setter(self._base)
        if layers:
            self.checkpoint_blocks = lambda: layers
        if switch is not None:
            self._switch_attention = switch
            self.set_attention = self._set_attention
        if self._facts.get("kind", "text") == "text":
            self.set_tokens = self._set_tokens

    @property
    def attention(self) -> str:
        """Read from the model's own configuration."""
        return attention_of(self._base)

    def in_effect(self) -> dict[str, str]:
        """What this workload really does, by knob."""
        return {"loss": "full" if self._head is None else "chunked", "batching": self.batching, "tokens": self.tokens}

    def dataset(self) -> Any:
        """Rows of token ids in the study's fixed order (lists of documents when ``packed``)."""
        return self._open_data().rows(tokens=self.tokens, batching=self.batching)

    def lengths(self) -> Any:
        """Real units (targets) per row, an array in the data set's order."""
        return self._open_data().targets(batching=self.batching)

    @property
    def collate(self) -> Collator:
        """What makes a micro-batch of samples: a small object of its own, which loader workers can take along."""
        from objectives.data.collate import Collator

        packed = self.batching == "packed"
        return Collator(packed=packed, fill=self._fill, sequence_length=self._settings.sequence_length)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, int]:
        """The sum of the cross-entropy over real targets (fp32) and their number."""
        from objectives.chunked_loss import chunked_cross_entropy_sum, cross_entropy_sum

        output = model(**self._inputs(batch), use_cache=False).logits.flatten(0, -2)
        targets = batch["targets"].flatten()
        if self._head is None:
            return cross_entropy_sum(output, targets), batch["units"]
        return chunked_cross_entropy_sum(self._head, output, targets), batch["units"]

    def _inputs(self, batch: Batch) -> dict[str, torch.Tensor]:
        if "position_ids" not in batch:
            return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        inputs = {name: batch[name] for name in _PACKED_INPUTS}
        if self.attention.startswith("flash"):  # separates documents within one row only
            return {name: tensor.reshape(1, -1) for name, tensor in inputs.items()}
        return inputs

    def longest(self, micro_batch_size: int) -> Batch:
        """Rows as long as the data has them; of two or more, one is a token short, so that the mask is really built."""
        limit = self._settings.sequence_length
        vocabulary = int(self._base.config.get_text_config().vocab_size)
        numbers = np.random.default_rng(0)
        if self.batching == "packed":
            sizes = [limit - limit // 2, limit // 2]
            return self.collate(
                [[numbers.integers(0, vocabulary, size) for size in sizes] for _ in range(micro_batch_size)]
            )
        longest = min(limit, int(self._facts.get("longest_row", limit)))
        rows = [numbers.integers(0, vocabulary, longest) for _ in range(micro_batch_size)]
        uneven = longest > 2 and int(self._facts.get("shortest_row", 0)) < longest
        if micro_batch_size > 1 and uneven:
            rows[-1] = rows[-1][:-1]
        return self.collate(rows)

    def _set_attention(self, name: str) -> None:
        self._switch_attention(name)
        if self.batching == "packed":
            self._refuse_mixed_documents()

    def set_loss(self, name: str) -> None:
        """``full`` or ``chunked``. Raises ``ValueError`` where chunks would not give the same loss."""
        from objectives.chunked_loss import HiddenStates, refusal

        if name not in ("full", "chunked"):
            raise ValueError(f"unknown loss {name!r}: full or chunked")
        if self._head is not None:
            self._base.set_output_embeddings(self._head)
            self._head = None
        if name == "chunked":
            if reason := refusal(self._base):
                raise ValueError(f"the loss of {type(self._base).__name__} cannot be chunked: {reason}")
            self._head = self._base.get_output_embeddings()
            self._base.set_output_embeddings(HiddenStates(self._head))

    def set_batching(self, name: str) -> None:
        """Raises ``ValueError`` where the model would let packed documents see each other."""
        if name not in BATCHINGS:
            raise ValueError(f"unknown batching {name!r}: use one of {', '.join(BATCHINGS)}")
        self.batching = name
        if name == "packed":
            self._refuse_mixed_documents()

    def _refuse_mixed_documents(self) -> None:
        from objectives.packing_check import mixes_documents

        if reason := mixes_documents(self):
            raise ValueError(f"{type(self._base).__name__} with {self.attention} cannot take packed batches: {reason}")

    def _set_tokens(self, name: str) -> None:
        if name not in ("on-the-fly", "cached"):
            raise ValueError(f"unknown tokens {name!r}: on-the-fly or cached")
        self.tokens = name
