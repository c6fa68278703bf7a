"""How the cross-entropy is computed: with the logits of every position at once, or piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectives.knobs.in_effect import named_by_workload
from objectives.knobs.knob import Choice, Knob

if TYPE_CHECKING:
    from objectives.trial.setup import Setup


def _apply(setup: Setup, value: str) -> None:
    if hasattr(setup.workload, "set_loss"):
        setup.workload.set_loss(value)


LOSS = Knob(
    name="loss",
    kind="choice",
    summary="Whether the logits of a whole micro-batch exist at once. With a large vocabulary they are often the peak.",
    default="full",
    choices=(
        Choice(
            value="full",
            meaning="One matrix of logits for all positions of the micro-batch, as the model's own loss does.",
            source="PyTorch documentation, torch.nn.functional.cross_entropy",
        ),
        Choice(
            value="chunked",
            meaning="Logits and their gradient exist for a few positions at a time: less memory, some more work.",
            source="Hsu et al. 2024 (Liger Kernel), fused linear cross-entropy; equality with full is tested here",
        ),
    ),
    needs="set_loss",
    apply=_apply,
    read_back=named_by_workload("loss", "set_loss"),
)
