"""``kind: script`` in a spec: what is read, and what is refused with its line, reason and fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.errors import SpecError
from tuner.spec import identity, read
from tuner.spec.model import StudySpec

SPEC = """\
study: script
objective:
  kind: script
  command: [torchrun, --nproc_per_node=2, train.py, "{micro_batch_size}", "{accumulation_steps}", "{precision}"]
  environment: {WORKERS: "{loader_workers}"}
  words: {precision: {fp32: "", bf16-mixed: [--bf16, "True"]}}
global_batch_size: 16
baseline: {micro_batch_size: 2}
search: {micro_batch_size: {low: 1, high: 64}, precision: [fp32, bf16-mixed], loader_workers: [0, 2]}
"""


def made(text: str) -> StudySpec:
    return read(text, has_gpu=lambda: False)


def test_a_script_is_read_with_its_ranks() -> None:
    spec = made(SPEC)
    assert spec.ranks == 2
    assert spec.search["micro_batch_size"] == (1, 2, 4, 8)  # divides 16 samples over 2 ranks
    assert spec.objective.kind == "script"
    assert identity(spec)["objective"]["settings"]["command"][0] == "torchrun"


@pytest.mark.case("B07", "B12")
@pytest.mark.parametrize(
    ("old", "new", "line", "where", "reason"),
    [
        ('"{precision}"]', "x]", 6, "objective.words.precision", "does not use {precision}"),
        ('"{loader_workers}"', '"2"', 4, "objective.command", "'loader_workers' is searched"),
        ("{micro_batch_size}", "{batch}", 4, "objective.command[3]", "{batch} is no knob"),
        ("nproc_per_node=2", "nproc_per_node=gpu", 4, "objective.command", "'gpu', not a number of ranks"),
        ("nproc_per_node=2", "nproc_per_node=3", 9, "search.micro_batch_size", "divides 16 samples over 3 ranks"),
        ("{micro_batch_size: 2}", "{micro_batch_size: 16}", 8, "baseline.micro_batch_size", "16 / (16 x 2)"),
        (', bf16-mixed: [--bf16, "True"]', "", 6, "objective.words.precision", "bf16-mixed may be run"),
        ('[--bf16, "True"]', "{a: b}", 6, "objective.words", "not a mapping"),
        ("[torchrun", "[true", 4, "objective.command", "true is no argument"),
        ("global_batch_size: 16", "global_batch_tokens: 16", 7, "global_batch_tokens", "counted in samples"),
        ("WORKERS:", "PYTHONPATH:", 5, "objective.environment.PYTHONPATH", "cannot set this variable"),
        ("  words:", "  wrods:", 6, "objective.wrods", "unknown key 'wrods'"),
        ("  words:", "  patch: {file: c.yaml, values: {a: 1}}\n  words:", 6, "objective.patch", "would never read"),
        ("  words:", "  patch: {file: c.yaml, values: {a: [1]}}\n  words:", 6, "objective.patch.values", "gets a list"),
        ("  words:", "  ranks: 4\n  words:", 4, "objective.command", "'ranks' is 4, and the launcher starts 2"),
    ],
)  # fmt: skip
def test_one_wrong_thing_is_refused_with_line_and_reason(
    old: str, new: str, line: int, where: str, reason: str
) -> None:
    assert old in SPEC
    with pytest.raises(SpecError) as refused:
        made(SPEC.replace(old, new, 1))
    told = [(problem.where, problem.reason, problem.line) for problem in refused.value.problems]
    assert any(place == where and reason in why and at == line for place, why, at in told), told


def test_every_example_script_has_a_spec_and_the_other_way_round() -> None:
    folder = Path(__file__).parents[3] / "examples" / "scripts"
    specs = {path.stem for path in folder.glob("*.yaml")}
    assert specs == {path.stem for path in folder.glob("*.py")}
    for name in specs:
        settings: dict[str, Any] = dict(read(folder / f"{name}.yaml").objective.settings)
        assert f"{name}.py" in settings["command"]


def test_the_two_lines_that_help_load_nothing_and_do_nothing_outside_a_run() -> None:
    import subprocess
    import sys

    code = "import tuner, sys; tuner.report_step(samples=1); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"torch", "optuna", "sqlalchemy", "pydantic", "click"}.isdisjoint(said.split())
