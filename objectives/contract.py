"""What an objective is: a model, its data and its loss. This file is the whole contract, for the built-ins as well.

A user's own objective is one small class, named in the spec as ``"package.module:name"``::

    class MyObjective:
        unit = "samples"

        def build(self, device, seed):
            return MyWorkload(...)

A missing optional method makes the knob that needs it illegal, with that reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import nn

Unit = Literal["tokens", "samples"]
Batch = Any
"""Whatever ``collate`` returns and ``loss`` takes: a tensor, or nested dicts, lists and tuples of tensors."""


class Workload(Protocol):
    """A model with its data on one device. Made anew in every child.

    Optional methods, each needed by one knob:

    * ``checkpoint_blocks() -> list[nn.Module]``: the modules to recompute (knob ``activation_checkpointing``).
    * ``set_attention(name)``: switch the attention implementation (``attention``).
    * ``set_loss(name)``: ``full`` or ``chunked`` (``loss``).
    * ``set_batching(name)``: ``padded``, ``length-grouped`` or ``packed`` (``batching``).
    * ``set_tokens(name)``: ``on-the-fly`` or ``cached`` (``tokens``).
    * ``optimizer(parameters) -> torch.optim.Optimizer``: the user's own; the knob ``optimizer`` is then illegal.
    * ``lengths() -> Sequence[int] | None``: real units per sample in dataset order (``length-grouped`` needs it).
    * ``evaluate(model)``: one evaluation pass.
    * ``in_effect() -> Mapping[str, value]``: what is really set of ``loss``, ``batching`` and ``tokens``; without it
      these three are not read back.
    """

    model: nn.Module

    def dataset(self) -> Any:
        """A map-style dataset. Sample ``i`` is the same in every run of a study."""

    def collate(self, samples: list[Any]) -> Batch:
        """Makes one micro-batch of samples. Runs in loader workers."""

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, int]:
        """The SUM of the loss over real units (a scalar tensor), and their number. Padding never counts."""

    def longest(self, micro_batch_size: int) -> Batch:
        """The worst case for memory: a micro-batch at the largest shape the data can have (on the CPU)."""


@runtime_checkable
class Objective(Protocol):
    """Makes workloads. Constructed in the child with the spec's ``objective`` keys as keyword arguments."""

    unit: Unit

    def build(self, device: torch.device, seed: int) -> Workload:
        """Builds the model (weights from ``seed``) on the device. Touches no data and makes no optimizer.

        Optional beside it: ``prepare(cache: Path) -> dict``, run once per study in a process of its own before the
        first trial. What it leaves under ``cache`` is what trials load; what it returns (JSON) is kept with the study.
        """


@dataclass(frozen=True, kw_only=True)
class ObjectiveReference:
    """How a spec names an objective. Plain data: it travels to the child and into the store.

    Attributes:
        kind: A built-in's name or ``"package.module:name"``.
        settings: Keyword arguments of the objective's class.
        folder: The folder the spec was read from. Relative paths in ``settings`` start here, and the user's own modules
            are found here, after every installed package.
        cache: Folder for what ``prepare`` leaves (tokenizer, index, cached tokens).
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: str = "."
    cache: str = ""

    @property
    def cache_path(self) -> Path:
        """``cache`` as a path."""
        return Path(self.cache)


BUILT_IN: Mapping[str, str] = {
    "causal_lm": "objectives.causal_lm:CausalLM",
    "image_classifier": "objectives.image_classifier:ImageClassifier",
}
"""The built-in kinds and where each lives."""

SCRIPT = "script"
"""The kind of a user's own training script (:mod:`objectives.script`): no class is loaded for it."""


class ObjectiveError(ValueError):
    """The spec names an objective that cannot be loaded or built. The message names the place and the way out."""


def load_objective(reference: ObjectiveReference) -> Objective:
    """Imports the objective's class and constructs it. Runs in a child, or in the template for its import alone.

    Built-ins get ``folder`` and ``cache`` beside the spec's settings; a user's class gets the settings alone.

    Raises:
        ObjectiveError: The module or name is missing, or the class refuses the settings.
    """
    factory = import_factory(reference.kind)
    extra = {"folder": reference.folder, "cache": reference.cache} if reference.kind in BUILT_IN else {}
    try:
        made = factory(**dict(reference.settings), **extra) if callable(factory) else factory
    except TypeError as error:
        raise ObjectiveError(f"objective {reference.kind!r} refuses its settings: {error}") from error
    if not isinstance(made, Objective):
        raise ObjectiveError(f"objective {reference.kind!r} has no `unit` or no `build(device, seed)`")
    return made


def import_factory(kind: str) -> Any:
    """The class (or ready object) a kind names.

    Raises:
        ObjectiveError: Not a built-in and not importable as ``"package.module:name"``.
    """
    module_name, separator, name = BUILT_IN.get(kind, kind).partition(":")
    if not separator:
        known = ", ".join(BUILT_IN)
        raise ObjectiveError(f"unknown objective {kind!r}: use one of {known}, or your own as 'package.module:name'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and not (module_name + ".").startswith(error.name + "."):
            raise
        raise ObjectiveError(
            f"no module {module_name!r} for objective {kind!r}: it is looked for in the spec's folder and among the "
            "installed packages; a name that an installed package already has cannot be used"
        ) from error
    if not hasattr(module, name):
        raise ObjectiveError(f"module {module_name!r} ({module.__file__}) has no {name!r}")
    return getattr(module, name)
