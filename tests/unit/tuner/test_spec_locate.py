"""Problems found in preparation come back with the line of the key they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import SpecError, SpecProblem
from tuner.spec.locate import objective_problem, with_lines

SPEC = """\
study: s
objective:
  kind: causal_lm
  model: {config: {model_type: llama,
                   hiden_size: 3}}
  data:
    path: nothing/*.jsonl
environment: {LD_PRELOAD: /none.so}
global_batch_tokens: 1000
on_cuda:
  objective: {data: {sequence_length: 4096}}
"""


@pytest.mark.parametrize(
    ("text", "where", "line"),
    [
        ("objective.data.path: 'nothing' means no file", "objective.data.path", 7),
        ("objective.model.config.hiden_size: no such key", "objective.model.config.hiden_size", 5),
        ("objective.model.config: refused", "objective.model.config", 4),
        ("objective.data.tokenizer: text needs one", "objective.data.tokenizer", 6),
        ("objective.data.sequence_length: too long", "objective.data.sequence_length", 11),
        ("nothing is prepared", "objective", 2),
        ("objective 'a:b' refuses its settings: why", "objective", 2),
    ],
)
def test_an_objectives_word_about_a_key_gets_its_line(tmp_path: Path, text: str, where: str, line: int) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    with pytest.raises(SpecError) as caught, with_lines(tmp_path / "spec.yaml"):
        raise SpecError((objective_problem(text),), source="")
    (problem,) = caught.value.problems
    assert (problem.where, problem.line) == (where, line)
    assert str(caught.value).startswith(f"{tmp_path / 'spec.yaml'}:{line}: {where}: ")
    assert "spec: " not in str(caught.value)


def test_problems_of_other_keys_and_those_with_lines_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    problems = tuple(
        SpecProblem(where=where, reason="r", fix="f")
        for where in ("environment.LD_PRELOAD", "global_batch_tokens", "seed")
    )
    with pytest.raises(SpecError) as caught, with_lines(tmp_path / "spec.yaml"):
        raise SpecError(problems, source="")
    assert [each.line for each in caught.value.problems] == [8, 9, 1]
    known = SpecError((SpecProblem(where="x", reason="r", fix="f", line=3),), "other.yaml")
    with pytest.raises(SpecError) as caught, with_lines(tmp_path / "spec.yaml"):
        raise known
    assert caught.value is known


def test_without_a_file_the_key_stands_alone() -> None:
    assert str(SpecError((objective_problem("objective.data: none"),), source="")) == "objective.data: none."
