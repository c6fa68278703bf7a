"""Every kind of bad spec is refused with the line, the reason and the fix, and never with another exception."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import SpecError, SpecProblem
from tuner.settings import Settings
from tuner.spec import read

GOOD = """\
study: tiny
objective:
  kind: causal_lm
  model: {config: {model_type: llama}}
  data: {path: corpus.txt, tokenizer: ./tokenizer, sequence_length: 128}
global_batch_size: 64
baseline:
  micro_batch_size: 4
search:
  micro_batch_size: [1, 2, 4]
  precision: [fp32, bf16-mixed]
limits:
  memory: 92%
  trials: 10
"""
SETTINGS = Settings(data_dir=Path("/data"), cache_dir=Path("/cache"))


def problems(text: object, **overrides: object) -> tuple[SpecProblem, ...]:
    with pytest.raises(SpecError) as caught:
        read(text, overrides=overrides, settings=SETTINGS)  # type: ignore[arg-type]
    return caught.value.problems


def edited(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


EDITS = [
    # what is written, by what it is replaced, line, key, a word of the reason, a word of the fix
    ("study: tiny", "stuyd: tiny", 1, "stuyd", "unknown key", "study"),
    ("study: tiny", "study: 2024", 1, "study", "not text", "quotes"),
    ("study: tiny", "study: ''", 1, "study", "empty name", "name"),
    ("study: tiny", 'study: "a\\nb"', 1, "study", "line break", "Remove"),
    ("study: tiny", 'study: "a\\0b"', 1, "study", "NUL", "text"),
    ("study: tiny", "study: " + "x" * 201, 1, "study", "201 characters", "200"),
    ("study: tiny", "study: [a]", 1, "study", "a list", "text"),
    ("study: tiny\n", "", 1, "study", "missing", "study: ..."),
    ("kind: causal_lm", "kind: causal-lm", 3, "objective.kind", "unknown objective", "causal_lm"),
    ("kind: causal_lm", "kind: scripts", 3, "objective.kind", "unknown objective", "Did you mean 'script'?"),
    ("kind: causal_lm", "kind: my/module.py:Tiny", 3, "objective.kind", "does not name a class", "package.module:name"),
    ("  kind: causal_lm\n", "", 2, "objective.kind", "missing", "causal_lm"),
    ("{config: {model_type: llama}}", "llama", 4, "objective.model", "not a mapping", "key: value"),
    ("{config: {model_type: llama}}", "{}", 4, "objective.model", "nothing names the model", "one"),
    ("{config: {model_type: llama}}", "{path: ./a, hub: b}", 4, "objective.model", "exactly one", "one"),
    ("{config: {model_type: llama}}", "{path: ./a, revision: b}", 4, "objective.model", "hub name", "revision"),
    ("model_type: llama", "hidden_size: 64", 4, "objective.model.config", "which model", "model_type"),
    ("llama}", "llama, auto_map: {}}", 4, "objective.model.config.auto_map", "Python code", "Remove"),
    ("llama}", "llama, attn_implementation: x}", 4, "objective.model.config.attn_implementation", "knob", "attention"),
    ("{model_type: llama}}", "{model_type: llama}, trust_remote_code: true}", 4, "objective.model.trust_remote_code",
     "unknown key", "Known"),
    ("sequence_length: 128", "sequence_length: '128'", 5, "objective.data.sequence_length", "whole number", "quotes"),
    ("sequence_length: 128", "seq_len: 128", 5, "objective.data.seq_len", "unknown key", "sequence_length"),
    ("sequence_length: 128", "sequence_length: 1", 5, "objective.data.sequence_length", "out of range", "at least 2"),
    ("path: corpus.txt", "path: []", 5, "objective.data.path", "not a path", "pattern"),
    ("tokenizer: ./tokenizer", "tokenizer: {train: {}}", 5, "objective.data.tokenizer", "tokenizer", "vocab_size"),
    ("path: corpus.txt", "path: a, format: csv", 5, "objective.data.format", "'csv'", "parquet"),
    ("  model:", "  lora: {alpha: 16}\n  model:", 4, "objective.lora.r", "missing", "r: ..."),
    ("global_batch_size: 64", "global_batch_size: 64.0", 6, "global_batch_size", "not a whole", "without a point"),
    ("global_batch_size: 64", "global_batch_size: true", 6, "global_batch_size", "true is not a whole", "whole number"),
    ("global_batch_size: 64", "global_batch_size: 0", 6, "global_batch_size", "out of range", "at least 1"),
    ("global_batch_size: 64", "batch_size: 64", 6, "batch_size", "unknown key", "global_batch_size"),
    ("global_batch_size: 64\n", "", 1, "global_batch_size", "missing", "global_batch_tokens"),
    ("global_batch_size: 64", "global_batch_size: 64\nglobal_batch_tokens: 9", 7, "global_batch_tokens", "too", "one"),
    ("  micro_batch_size: 4", "  micro_batch_size: 24", 8, "baseline.micro_batch_size", "24 x", "16, 32"),
    ("  micro_batch_size: 4", "  precision: bf16", 8, "baseline.precision", "not a value", "bf16-mixed"),
    ("  micro_batch_size: 4", "  accumulation_steps: 4", 8, "baseline.accumulation_steps", "derived", "Remove"),
    ("[1, 2, 4]", "[1, 2, 2]", 10, "search.micro_batch_size", "more than once", "once"),
    ("[1, 2, 4]", "[]", 10, "search.micro_batch_size", "empty", "micro_batch_size: ["),
    ("[1, 2, 4]", "[1, '2']", 10, "search.micro_batch_size[1]", "text, not a number", "2 without quotes"),
    ("[1, 2, 4]", "[1, 2.0]", 10, "search.micro_batch_size[1]", "not a whole number", "Write 2"),
    ("[1, 2, 4]", "[true]", 10, "search.micro_batch_size[0]", "true", "micro_batch_size: ["),
    ("[1, 2, 4]", "[[1]]", 10, "search.micro_batch_size[0]", "a list", "micro_batch_size: ["),
    ("[1, 2, 4]", "[0]", 10, "search.micro_batch_size[0]", "out of range", "from 1"),
    ("[1, 2, 4]", "{low: 9, high: 15}", 10, "search.micro_batch_size", "divides 64", "Widen"),
    ("[1, 2, 4]", "{low: 8, high: 2}", 10, "search.micro_batch_size", "range 8 to 2", "low <= high"),
    ("[1, 2, 4]", "{low: 1}", 10, "search.micro_batch_size", "low and high", "{low: 1, high: 64}"),
    ("[1, 2, 4]", "{low: 1, high: 8, step: 1}", 10, "search.micro_batch_size", "low and high", "{low: 1, high: 64}"),
    ("[fp32, bf16-mixed]", "{low: 1, high: 2}", 11, "search.precision", "only integer knobs", "precision: ["),
    ("[fp32, bf16-mixed]", "", 11, "search.precision", "empty value", "precision: ["),
    ("precision: [", "presicion: [", 11, "search.presicion", "unknown knob", "precision"),
    ("precision: [fp32, bf16-mixed]", "dtype: [bf16]", 11, "search.dtype", "unknown knob", "precision"),
    ("precision: [fp32, bf16-mixed]", "pin_memory: [1]", 11, "search.pin_memory[0]", "1 is not", "true"),
    ("precision: [fp32, bf16-mixed]", "compile: [false]", 11, "search.compile[0]", "false is not", "off"),
    ("precision: [fp32, bf16-mixed]", "batching: packed", 11, "search.batching", "samples", "global_batch_tokens"),
    ("precision: [fp32, bf16-mixed]", "loader_workers: {low: 0, high: 99}", 11, "search.loader_workers", "100", "list"),
    ("memory: 92%", "memory: 92", 13, "limits.memory", "92 bytes", "92%"),
    ("memory: 92%", "memory: 0.92", 13, "limits.memory", "neither", "92%"),
    ("memory: 92%", "memory: 40 GX", 13, "limits.memory", "'GX'", "GiB"),
    ("trials: 10", "trials: 0", 14, "limits.trials", "out of range", "at least 1"),
    ("trials: 10", "time: 20", 14, "limits.time", "20", "20m"),
    ("trials: 10", "time: 5s", 14, "limits.time", "window", "time"),
    ("trials: 10", "trial_time: 8s", 14, "limits.trial_time", "window", "trial_time"),
    ("trials: 10", "window: 200s", 12, "limits.trial_time", "window", "shorter window"),
    ("trials: 10", "target_half_width: 0.01", 14, "limits.target_half_width", "neither", "percent"),
    ("limits:\n  memory: 92%\n  trials: 10\n", "limits: 5\n", 12, "limits", "not a mapping", "key: value"),
    ("study: tiny", "study: tiny\nsampler: tpee", 2, "sampler", "'tpee'", "tpe"),
    ("study: tiny", "study: tiny\ndevice: gpu", 2, "device", "'gpu'", "cpu"),
    ("study: tiny", "study: tiny\nseed: -1", 2, "seed", "out of range", "at least 0"),
    ("study: tiny", "study: tiny\nseed: 2147483648", 2, "seed", "out of range", "at most 2147483647"),
    ("study: tiny", "study: tiny\nmax_grad_norm: 0", 2, "max_grad_norm", "out of range", "above 0"),
    ("study: tiny", "study: tiny\nmax_grad_norm: .inf", 2, "max_grad_norm", "finite", "ordinary"),
    ("study: tiny", "study: tiny\nlearning_rate: fast", 2, "learning_rate", "not a number", "number"),
    ("study: tiny", "study: tiny\nenvironment: {A: true}", 2, "environment.A", "true is not text", "quotes"),
    ("study: tiny", "study: tiny\nenvironment: {A-B: x}", 2, "environment.A-B", "name of a variable", "letters"),
    ("study: tiny", "study: tiny\nenvironment: {PYTHONPATH: x}", 2, "environment.PYTHONPATH", "cannot set", "Install"),
    ("study: tiny", "study: tiny\nenvironment: {TUNER_DATA_DIR: x}", 2, "environment.TUNER_DATA_DIR", "own", "start"),
    ("study: tiny", "study: tiny\nenvironment: {HF_TOKEN: x}", 2, "environment.HF_TOKEN", "credential", "start"),
    ("study: tiny", "study: tiny\nenvironment: {AWS_SECRET_ACCESS_KEY: x}", 2, "environment.AWS_SECRET_ACCESS_KEY",
     "credential", "start"),
    ("study: tiny", "study: tiny\nenvironment: {CUDA_VISIBLE_DEVICES: 0}", 2, "environment.CUDA_VISIBLE_DEVICES",
     "cannot set", "one device"),
    ("study: tiny", "study: tiny\nenvironment: {NVIDIA_TF32_OVERRIDE: 0}", 2, "environment.NVIDIA_TF32_OVERRIDE",
     "cannot set", "tf32"),
    # YAML itself
    ("study: tiny", "study: tiny\nstudy: other", 2, "study", "twice, first on line 1", "one of them"),
    ("  trials: 10", "\ttrials: 10", 14, "", "a tab", "spaces"),
    ("study: tiny", "study: 'tiny", 1, "", "never closed", "quote"),
    ("[1, 2, 4]", "[1, 2, 4", 10, "", "not closed", "[a, b, c]"),
    ("{path: corpus.txt,", "{path: [corpus.txt,", 5, "", "not closed", "[a, b, c]"),
    ("study: tiny", "study: a: b", 1, "", "stands where none can", "quotes"),
    ("study: tiny", "study: @tiny", 1, "", "reserves", "quotes"),
    ("  trials: 10", "    trials: 10", 14, "", "stands where none can", "Align"),
    ("  trials: 10", " trials: 10", 14, "", "indentation", "Align"),
    ("study: tiny", "study: !!python/object/apply:os.system [touch /tmp/owned]", 1, "study", "the tag", "plain"),
    ("study: tiny", "study: !!str tiny", 1, "study", "the tag", "plain"),
    ("study: tiny", "study: &name tiny", 1, "study", "'&name'", "write values out"),
    ("baseline:\n  micro_batch_size: 4", "baseline:\n  <<: {micro_batch_size: 4}", 8, "baseline.<<", "merge", "here"),
    ("study: tiny", "study: *name", 1, "study", "points to another place", "here"),
    ("study: tiny", "? [a, b]\n: 1\nstudy: tiny", 1, "?", "one word", "key: value"),
    ("  trials: 10\n", "  trials: 10\n---\nstudy: b\n", 15, "", "second document", "one study"),
    ("study: tiny", "study: ti\x00ny", 1, "", "not text", "UTF-8"),
    ("study: tiny", "study: tiny\nseed: " + "9" * 50, 2, "seed", "too large", "at most"),
    ("study: tiny", 'study: "\\ud800"', 1, "study", "half a character", "ordinary"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "where", "reason", "fix"), EDITS)
def test_one_wrong_thing_is_refused_with_line_reason_and_fix(
    old: str, new: str, line: int, where: str, reason: str, fix: str
) -> None:
    found = problems(edited(old, new))
    match = [each for each in found if each.where == where and reason in each.reason]
    assert match, found
    assert match[0].line == line
    assert fix in match[0].fix


@pytest.mark.parametrize(
    "text",
    ["", "   \n", "# only a comment\n", "{}", "- a\n- b\n", "just words\n", "42\n", "null\n", "study\n", "---\n...\n"],
)
def test_what_is_no_mapping_is_refused(text: str) -> None:
    assert [problem.where for problem in problems(text + "\n")] == [""]


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = GOOD.replace("tiny", "''").replace("llama", "7").replace("[1, 2, 4]", "[3]").replace("10\n", "x\n")
    assert [problem.line for problem in problems(text)] == [1, 4, 10, 14]
    assert len(problems("study: 1\nobjective: 2\nsearch: 3\nbaseline: 4\nlimits: 5\n")) == 6


@pytest.mark.case("B07")
def test_a_micro_batch_that_does_not_divide_the_global_batch_is_refused_and_the_others_are_not() -> None:
    (found,) = problems(edited("[1, 2, 4]", "[1, 2, 4, 8, 16, 24]"))
    assert (found.where, found.line) == ("search.micro_batch_size[5]", 10)
    assert "16, 32" in found.fix


@pytest.mark.case("D07")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("expandable_segments=True", ":"),
        ("expandable_segment:True", "expandable_segments"),
        ("expandable_segments:True,max_split_size_mb:128", "together"),
        ("expandable_segments:yes", "True or False"),
        ("max_split_size_mb:big", "number"),
    ],
)
def test_an_allocator_setting_that_pytorch_would_not_read_is_refused(value: str, said: str) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        (found,) = problems(GOOD + f'environment: {{{name}: "{value}"}}\n')
        assert said in found.reason + found.fix


@pytest.mark.case("D07")
def test_an_allocator_variable_beside_the_allocator_knob_is_a_conflict() -> None:
    text = GOOD.replace("precision: [", "allocator: [default]\n  precision: [")
    (found,) = problems(text + "environment: {PYTORCH_ALLOC_CONF: 'expandable_segments:True'}\n")
    assert "knob 'allocator'" in found.reason


@pytest.mark.case("G11")
@pytest.mark.parametrize("values", ["[64.0, 32.0]", "[64, 32.0]", "[sixty]", "{low: 1.0, high: 4.0}"])
def test_a_space_never_mixes_types(values: str) -> None:
    assert problems(edited("[1, 2, 4]", values))


@pytest.mark.case("G22")
@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\0b", "a\nb", " a", "a\u200b", "\x1b[31m"])
def test_names_the_store_could_not_keep_are_refused(name: str) -> None:
    mapping = {"study": name, "objective": {"kind": "a:b"}, "global_batch_size": 4, "search": {"compile": "off"}}
    assert [problem.where for problem in problems(mapping)][:1] == ["study"]


def test_files_that_are_no_spec(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    (tmp_path / "large.yaml").write_text("# " + "x" * 1_000_001)
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "nowhere")
    for name, reason in [
        ("missing.yaml", "no such file"), (".", "folder"), ("binary.yaml", "UTF-8"), ("large.yaml", "larger"),
        ("dangling.yaml", "no such file"), ("a\0b", "cannot be read"), ("x" * 5000, "cannot be read"),
    ]:  # fmt: skip
        (found,) = problems(tmp_path / name)
        assert reason in found.reason
        assert found.fix


def test_a_string_of_one_line_is_a_file() -> None:
    (found,) = problems("no/such/study.yaml")
    assert "no such file" in found.reason
    assert str(Path("no/such/study.yaml").absolute()) in found.fix


def test_bombs_are_bounded() -> None:
    laughs = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert problems(laughs)
    assert "nested" in problems("x: " + "[" * 300 + "]" * 300 + "\n")[0].reason
    assert "values" in problems("x: [" + "1," * 20_001 + "]\n")[0].reason


def test_a_mapping_that_holds_itself_or_an_object_is_refused() -> None:
    loop: dict[str, object] = {"study": "x"}
    loop["baseline"] = loop
    assert problems(loop)
    assert any("object cannot stand" in each.reason for each in problems({"study": object()}))
    assert any("finite" in each.reason for each in problems({"study": "x", "learning_rate": math.nan}))


def test_nothing_in_a_spec_is_evaluated(tmp_path: Path) -> None:
    target = tmp_path / "owned"
    for attack in (f"!!python/object/apply:os.system ['touch {target}']", f'\'__import__("os").mkdir("{target}")\''):
        read_quietly(GOOD.replace("4096", "1") + f"seed: {attack}\n")
    assert not target.exists()


def read_quietly(source: object) -> None:
    """Reads, and lets only our own error pass."""
    refused: SpecError | None = None
    try:
        read(source, settings=SETTINGS)  # type: ignore[arg-type]
    except SpecError as error:
        refused = error
    if refused is not None:
        assert refused.problems
        assert all(problem.reason and problem.fix for problem in refused.problems)
        assert str(refused)


WORDS = st.sampled_from(
    [
        "study", "objective", "kind", "causal_lm", "model", "config", "data", "path", "search", "baseline", "limits",
        "micro_batch_size", "precision", "fp32", "low", "high", "global_batch_size", "environment", "memory", "92%",
        "0", "-1", "1.5", "true", "off", "null",
        "[", "]", "{", "}", ":", ": ", "- ", "\n", "\n  ", "\t", "&a", "*a", "!!x",
        "'", '"', "#", "|", ">", "%", "@", "?", ",", "---", "...", "<<", "\\", "\x00", "é", "\u2028", "\ud800", "1e999",
    ]
)  # fmt: skip
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@FUZZ
@given(st.lists(WORDS, max_size=40).map("".join))
def test_read_raises_nothing_but_spec_errors_for_broken_text(text: str) -> None:
    read_quietly(text + "\n")


@FUZZ
@given(st.integers(0, len(GOOD)), st.integers(0, 30), st.lists(WORDS, max_size=3).map("".join))
def test_read_raises_nothing_but_spec_errors_for_a_damaged_spec(at: int, cut: int, new: str) -> None:
    read_quietly(GOOD[:at] + new + GOOD[at + cut :])


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4) | WORDS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SCALARS, inner, max_size=4), max_leaves=8
)
KEYS = ("study", "objective", "global_batch_size", "global_batch_tokens", "baseline", "search", "limits", "sampler",
        "seed", "max_grad_norm", "learning_rate", "environment", "device")  # fmt: skip


@FUZZ
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, VALUES)))
def test_read_raises_nothing_but_spec_errors_for_any_mapping(values: dict[str, object]) -> None:
    read_quietly(values)


KNOB_KEYS = st.sampled_from(["micro_batch_size", "precision", "pin_memory", "loader_workers", "batching", "allocator"])


@FUZZ
@given(st.dictionaries(KNOB_KEYS, VALUES, max_size=3), st.dictionaries(KNOB_KEYS, VALUES, max_size=3))
def test_read_raises_nothing_but_spec_errors_for_any_space(search: object, baseline: object) -> None:
    base = {"study": "x", "objective": {"kind": "a:b"}, "global_batch_size": 64}
    read_quietly({**base, "search": search, "baseline": baseline})
