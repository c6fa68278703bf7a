"""Export, then import: the same configuration, over every export format and the whole matrix."""

from __future__ import annotations

from pathlib import Path

import pytest
from handovers import handover_of, matrix

from objectives.config import KNOB_NAMES
from objectives.knobs import knob as knob_named
from tuner import spec as specs
from tuner.errors import SpecError
from tuner.export import FORMATS, Format, export
from tuner.export.handover import ExportRefused, Handover
from tuner.imports import FORMATS as IMPORTS
from tuner.imports import read_all
from tuner.imports.imported import Imported
from tuner.imports.init import init
from tuner.imports.source import sources

EACH = pytest.mark.parametrize("target", FORMATS, ids=lambda each: each.name)
NOT_SAID = {"prefetch_factor"}
"""Without workers the files hold none: it does not act."""


def there_and_back(folder: Path, handover: Handover, target: Format) -> tuple[Imported, set[str]] | None:
    """What the written folder says, and the knobs its files carry; None where the pair is refused."""
    try:
        made = export(handover, target)
    except ExportRefused:
        return None
    for old in folder.iterdir():
        old.unlink()
    for name, text in made.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    left = {each.knob for each in made.not_carried}
    return read_all(sources((folder,))), set(KNOB_NAMES) - left


@EACH
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.case("I02", "I04")
def test_over_the_whole_matrix_what_is_carried_comes_back(target: Format, kind: str, tmp_path: Path) -> None:
    for handover in matrix(kind):
        found = there_and_back(tmp_path, handover, target)
        if found is None:
            continue
        imported, carried = found
        wanted = handover.config.to_mapping()
        assert imported.problems == (), handover.config
        for name in carried & imported.knobs.keys() - NOT_SAID:
            assert imported.knobs[name] == wanted[name], (name, handover.config)
        for name in carried - imported.knobs.keys():  # told by silence: the default
            assert wanted[name] == knob_named(name).default or not knob_named(name).acts(handover.config), name
        for name in imported.knobs.keys() - carried:  # code decides: a wrong guess has to be marked as one
            assert imported.knobs[name] == wanted[name] or name in imported.uncertain, (name, handover.config)
        if "micro_batch_size" in imported.knobs:
            assert imported.accumulation_steps == wanted["accumulation_steps"]
            assert imported.global_batch_size == handover.global_batch_size


@EACH
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_and_clipping_come_back(target: Format, ranks: int, tmp_path: Path) -> None:
    handover = handover_of(ranks=ranks, max_grad_norm=0.5)
    found = there_and_back(tmp_path, handover, target)
    assert found is not None
    imported, _ = found
    assert imported.ranks in (ranks, None), target.name
    assert imported.max_grad_norm in (0.5, None)
    if imported.ranks is not None and "micro_batch_size" in imported.knobs:
        assert imported.global_batch_size == handover.global_batch_size


@EACH
def test_allocator_settings_come_back_as_the_knob(target: Format, tmp_path: Path) -> None:
    found = there_and_back(tmp_path, handover_of(config={"allocator": "expandable_segments"}), target)
    assert found is not None
    assert found[0].knobs["allocator"] == "expandable_segments"
    assert not any("ALLOC" in name for name in found[0].environment)


@EACH
def test_the_spec_is_refused_for_the_places_to_fill_in_and_for_nothing_else(target: Format, tmp_path: Path) -> None:
    there_and_back(tmp_path, handover_of(), target)
    made = init((tmp_path,), study="mine")
    with pytest.raises(SpecError) as refused:
        specs.read(made["spec"])
    assert {each.where for each in refused.value.problems} == {each["where"] for each in made["fill_in"]}
    assert all(each.line for each in refused.value.problems)
    filled = made["spec"].replace(
        "  data:", '  model: {path: ./m}\n  data:\n    path: "x.txt"\n    sequence_length: 64'
    )
    filled = filled if made["global_batch_size"] else filled.replace("search:", "global_batch_size: 16\nsearch:")
    read = specs.read(filled)
    assert {name: read.baseline[name] for name in made["baseline"]} == made["baseline"]
    assert all(read.baseline[name] in values for name, values in read.search.items() if name in read.baseline)


def test_names_are_unique() -> None:
    assert len({each.name for each in IMPORTS}) == len(IMPORTS)
