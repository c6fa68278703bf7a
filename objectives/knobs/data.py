"""What is done to the samples before they reach the device: tokenization and batching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectives.knobs.in_effect import named_by_workload
from objectives.knobs.knob import Choice, Facts, Knob

if TYPE_CHECKING:
    from objectives.trial.setup import Setup


def _apply_tokens(setup: Setup, value: str) -> None:
    if hasattr(setup.workload, "set_tokens"):
        setup.workload.set_tokens(value)


def _apply_batching(setup: Setup, value: str) -> None:
    if hasattr(setup.workload, "set_batching"):
        setup.workload.set_batching(value)


def _refuse_batching(value: str, facts: Facts) -> str | None:
    if value == "packed" and not facts.packable:
        return (
            "packing puts another number of samples into each batch: give the global batch in tokens "
            "(global_batch_tokens) to search it"
        )
    if value == "length-grouped" and "lengths" not in facts.workload_methods:
        return "grouping by length needs the workload's lengths()"
    return None


TOKENS = Knob(
    name="tokens",
    kind="choice",
    summary="Whether text is tokenized by the loader in every epoch, or once for all into a file.",
    default="on-the-fly",
    choices=(
        Choice(
            value="on-the-fly",
            meaning="The loader's workers tokenize each sample when it is asked for.",
            source="Hugging Face documentation, datasets, set_transform",
        ),
        Choice(
            value="cached",
            meaning="Everything is tokenized once into a memory-mapped file; its time and size are stated.",
            source="NumPy documentation, numpy.memmap; Hugging Face documentation, datasets, caching",
        ),
    ),
    needs="set_tokens",
    apply=_apply_tokens,
    read_back=named_by_workload("tokens", "set_tokens"),
)

BATCHING = Knob(
    name="batching",
    kind="choice",
    summary="Which samples share a micro-batch, and so how much of it is padding.",
    default="padded",
    choices=(
        Choice(
            value="padded",
            meaning="Samples in the order of the data; each micro-batch is padded to its longest sample.",
            source="Hugging Face documentation, transformers, DataCollatorWithPadding",
        ),
        Choice(
            value="length-grouped",
            meaning="The samples of one global batch are sorted by length before they are split: less padding, and "
            "the global batch holds the same samples.",
            source="Hugging Face documentation, TrainingArguments, group_by_length",
        ),
        Choice(
            value="packed",
            meaning="Documents are joined to rows of full length, kept apart by position and mask: no padding.",
            source="Hugging Face documentation, transformers, DataCollatorWithFlattening; Krell et al. 2021 (packing)",
        ),
    ),
    needs="set_batching",
    refuse=_refuse_batching,
    apply=_apply_batching,
    read_back=named_by_workload("batching", "set_batching"),
)
