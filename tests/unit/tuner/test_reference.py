"""The reference says what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectives.config import KNOB_NAMES
from objectives.data.settings import FORMATS, TOKEN_DTYPES, ImageData, TextData
from objectives.knobs import knob
from objectives.trial.outcome import CAUSES, OUTCOMES
from tuner.answer.summary import LIST_KEYS
from tuner.documents import LISTED
from tuner.reference import EXAMPLE, SECTIONS, main, reference
from tuner.search.samplers import SAMPLERS
from tuner.spec import keys, objective_keys, read

PAGE = Path(__file__).parents[3] / "docs" / "reference.md"


def test_the_committed_page_is_what_the_code_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"


def test_the_page_can_be_written_anywhere(tmp_path: Path) -> None:
    main([str(tmp_path / "deep" / "page.md")])
    assert (tmp_path / "deep" / "page.md").read_text(encoding="utf-8") == reference()


def test_the_example_is_a_spec() -> None:
    assert read(EXAMPLE).study == "llama-1b-4k"
    assert EXAMPLE in reference()


def test_every_key_is_described_and_typed() -> None:
    for title, _, section in SECTIONS:
        assert set(section.written) == set(section.model_fields), title
        assert all(field.description for field in section.model_fields.values()), title


def test_every_knob_value_outcome_and_cause_is_on_the_page() -> None:
    page = reference()
    words = [*KNOB_NAMES, *(row.outcome for row in OUTCOMES), *CAUSES]
    words += [str(value) for name in KNOB_NAMES for value in knob(name).values if not isinstance(value, bool)]
    assert [word for word in words if f"`{word}`" not in page] == []
    assert all(choice.source for name in KNOB_NAMES for choice in knob(name).choices)


@pytest.mark.case("C06")
def test_the_page_says_that_fp32_and_tf32_are_set_explicitly() -> None:
    rows = {
        value: next(row for row in reference().splitlines() if row.startswith(f"| `{value}`"))
        for value in ("fp32", "tf32")
    }
    assert "TF32 explicitly off" in rows["fp32"]
    assert "mantissa" in rows["tf32"]


def test_the_documents_fields_are_the_ones_the_summary_makes() -> None:
    assert {field.name for field in LISTED} == set(LIST_KEYS)


def test_no_line_breaks_a_table() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)


def test_the_spec_knows_every_sampler() -> None:
    assert tuple(sampler.name for sampler in SAMPLERS) == keys.SAMPLERS


def test_the_spec_knows_the_built_in_objectives_data_keys() -> None:
    for shape, settings in ((objective_keys.TextKeys, TextData), (objective_keys.PictureKeys, ImageData)):
        fields = settings.__dataclass_fields__
        assert set(shape.model_fields) == set(fields)
        optional = {name for name, field in shape.model_fields.items() if not field.is_required()}
        assert {name: shape.model_fields[name].default for name in optional} == {
            name: fields[name].default for name in optional
        }
    assert (objective_keys.FORMATS, objective_keys.TOKEN_DTYPES) == (FORMATS, TOKEN_DTYPES)
