"""The built-in ``image_classifier``: any transformers image classifier on pictures in class folders."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from objectives.contract import ObjectiveError
from objectives.data.files import fingerprint
from objectives.data.images import (
    Pictures,
    class_folders,
    collate_pictures,
    find_pictures,
    folders_without_picture,
    write_pictures,
)
from objectives.data.prepared import need_facts, once, read_facts, settings_key, write_json
from objectives.data.settings import ImageData, read_settings
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
from objectives.transformers_model import attention_setter, checkpoint_layers

if TYPE_CHECKING:
    import torch
    from torch import nn

    from objectives.contract import Batch, Unit

LAYOUT = "2"


class ImageClassifier:
    """Makes image-classification workloads.

    Args:
        model: ``{config: {model_type: vit, ...}}``, ``{path: ./folder}`` or ``{hub: name}``. A config without
            ``num_labels`` takes the number of class folders, one without ``image_size`` the data's.
        data: Keys of :class:`~objectives.data.settings.ImageData`.
        folder: Where relative paths start.
        cache: Where ``prepare`` has left its results.
    """

    unit: Unit = "samples"

    def __init__(self, *, model: Any, data: Mapping[str, Any], folder: str = ".", cache: str = "") -> None:
        self._folder = Path(folder)
        self._cache = cache
        self._source = model_source(model, self._folder)
        self._data = read_settings(ImageData, data)
        where = str(self._folder.resolve())
        self._key = settings_key("image_classifier", dict(model), asdict(self._data), where)

    @property
    def _root(self) -> Path:
        return self._folder / Path(self._data.path).expanduser()

    def prepare(self, cache: Path) -> dict[str, Any]:
        """Finds the pictures and reads their headers; downloads a hub model. Returns JSON facts.

        Raises:
            ObjectiveError: Pictures and model cannot be used, or not together.
        """
        from transformers import AutoModelForImageClassification

        started = time.monotonic()
        source = opened(self._source)
        refuse_unknown_keys(source)
        classes = class_folders(self._root)
        pictures = find_pictures(classes)
        without = folders_without_picture(self._root, classes)
        mark = fingerprint([file for file, _ in pictures], LAYOUT, str(self._data.sample_files), *map(str, without))
        place = cache / "data" / mark
        facts = once(place, lambda aside: write_pictures(aside, pictures, self._data.sample_files, without))
        facts |= {
            "fingerprint": mark,
            "folder": str(place),
            "source_files": len(pictures),
            "model_folder": None if source.folder is None else str(source.folder),
        }
        config = self._config(source, facts)
        facts["model_type"] = str(config.model_type)
        facts["model_shape"] = model_shape(config.to_dict())
        facts["parameters"] = count_parameters(AutoModelForImageClassification, config, source)
        facts["seconds"] = time.monotonic() - started
        write_json(cache / f"{self._key}.json", facts)
        return facts

    def build(self, device: torch.device, seed: int) -> ImageWorkload:
        """The model in fp32 on the device, weights from ``seed``. On ``meta`` no weights are read or made."""
        from transformers import AutoModelForImageClassification

        facts = read_facts(self._cache, self._key)
        source = opened(self._source, facts)
        config = self._config(source, facts)
        model = make_model(AutoModelForImageClassification, config, source, device, seed)
        model.train()
        return ImageWorkload(model=model, image_size=self._data.image_size, pictures=self._open_pictures)

    def _open_pictures(self) -> Pictures:
        facts = need_facts(self._cache, self._key)
        try:
            return Pictures(Path(facts["folder"]), self._data.image_size)
        except FileNotFoundError as error:
            raise ObjectiveError(f"prepared data is gone from the cache ({error}): run the study anew") from error

    def _config(self, source: ModelSource, facts: Mapping[str, Any] | None) -> Any:
        classes = facts["classes"] if facts is not None else len(class_folders(self._root))
        given = source.config
        if source.folder is None:
            values = given if "num_labels" in given or "id2label" in given else {**given, "num_labels": classes}
            config = read_config(replace(source, config=values))
            if "image_size" not in given and hasattr(config, "image_size"):
                config = read_config(replace(source, config={**values, "image_size": self._data.image_size}))
        else:
            config = read_config(source)
        self._check(config, classes)
        return config

    def _check(self, config: Any, classes: int) -> None:
        if config.num_labels < classes:
            raise ObjectiveError(
                f"objective.model: {config.num_labels} labels, but {self._root} has {classes} class folders: leave "
                "`num_labels` out, or make it as large"
            )
        size = getattr(config, "image_size", None)
        takes_any_size = config.model_type in ("convnext", "convnextv2", "resnet", "regnet", "mobilenet_v2")
        if size not in (None, self._data.image_size, [self._data.image_size] * 2) and not takes_any_size:
            raise ObjectiveError(
                f"objective.data.image_size: {self._data.image_size}, but the model wants pictures of {size}: give the "
                "same"
            )


class ImageWorkload:
    """An image classifier with its pictures, by the contract. Optional methods exist where the model has them."""

    checkpoint_blocks: Callable[[], list[nn.Module]]
    set_attention: Callable[[str], None]

    def __init__(self, *, model: Any, image_size: int, pictures: Callable[[], Pictures]) -> None:
        self.model = model
        self._image_size, self._open_pictures = image_size, pictures
        layers, setter = checkpoint_layers(model), attention_setter(model)
        if layers:
            self.checkpoint_blocks = lambda: layers
        if setter is not None:
            self.set_attention = setter

    def dataset(self) -> Pictures:
        """Pictures in the study's fixed order, decoded by whoever asks."""
        return self._open_pictures()

    @property
    def collate(self) -> Callable[[Sequence[Any]], Batch]:
        """What makes a micro-batch of samples: a plain function, which loader workers can take along."""
        return collate_pictures

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, int]:
        """The sum of the cross-entropy over the samples (fp32) and their number."""
        from torch.nn import functional

        logits = model(pixel_values=batch["pixel_values"]).logits
        total = functional.cross_entropy(logits.float(), batch["labels"], reduction="sum")
        return total, len(batch["labels"])

    def longest(self, micro_batch_size: int) -> Batch:
        """Noise of the one shape there is."""
        shape = (3, self._image_size, self._image_size)
        numbers = np.random.default_rng(0)
        labels = numbers.integers(0, self.model.config.num_labels, micro_batch_size)
        return self.collate([(numbers.standard_normal(shape, dtype=np.float32), int(label)) for label in labels])
