"""Configurations as people write them, read in our words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.imports import FORMATS, format_of, read_all
from tuner.imports.arguments import parse_arguments
from tuner.imports.imported import Imported
from tuner.imports.init import init
from tuner.imports.source import ImportRefused, source_of

TRAINER = {
    "output_dir": "out", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "bf16": True,
    "gradient_checkpointing": True, "optim": "adamw_torch_fused", "learning_rate": 2e-5, "dataloader_num_workers": 2,
}  # fmt: skip
AXOLOTL = """\
base_model: ./llama
datasets: [{path: mine, type: alpaca}]
sequence_len: 2048
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: auto
gradient_checkpointing: true
"""
TITAN = """\
torchrun --nproc_per_node 2 -m torchtitan.train.py --module llama3 --config llama3_8b \\
  --training.local_batch_size 2 --training.global_batch_size=16 --training.seq-len 4096 \\
  --parallelism.data_parallel_replicate_degree 2 --compile.enable activation-checkpoint:full
"""


def imported(folder: Path, text: str | dict[str, Any], file_name: str = "config.yaml", **options: Any) -> Imported:
    file = folder / (file_name if isinstance(text, str) else "config.json")
    file.write_text(text if isinstance(text, str) else json.dumps(text, indent=1), encoding="utf-8")
    return read_all((source_of(file),), **options)


def reasons(found: Imported) -> dict[str, str]:
    return {each.key: each.reason for each in found.problems}


def test_a_trainers_arguments(tmp_path: Path) -> None:
    found = imported(tmp_path, TRAINER)
    assert found.format == "hf-trainer"
    assert found.problems == ()
    assert found.knobs == {
        "micro_batch_size": 4, "precision": "bf16-mixed", "activation_checkpointing": "full", "compile": "off",
        "optimizer": "adamw-fused", "loader_workers": 2, "pin_memory": True,
    }  # fmt: skip
    assert (found.accumulation_steps, found.global_batch_size, found.learning_rate) == (8, 32, 2e-5)
    assert found.left == ("output_dir",)


@pytest.mark.case("F03")
def test_the_world_size_is_asked_for_where_no_file_says_it(tmp_path: Path) -> None:
    assert imported(tmp_path, TRAINER).ranks is None
    assert "does not say how many" in init((tmp_path / "config.json",))["spec"]
    made = init((tmp_path / "config.json",), world_size=8)
    assert (made["global_batch_size"], made["world_size"]) == (256, 8)
    assert "micro_batch_size: [1, 2, 4, 8, 16, 32]" in made["spec"], "sizes divide a rank's share of 32"


@pytest.mark.case("I16")
def test_axolotls_words(tmp_path: Path) -> None:
    found = imported(tmp_path, AXOLOTL)
    assert found.format == "axolotl"
    assert (found.knobs["micro_batch_size"], found.accumulation_steps) == (2, 4)
    assert found.knobs["precision"] == "bf16-mixed"
    assert found.knobs["activation_checkpointing"] == "full"
    assert found.model == {"path": "./llama"}
    assert found.data == {"sequence_length": 2048}
    assert any("prompt templates" in note for note in found.notes)
    packed = imported(tmp_path, AXOLOTL + "sample_packing: true\ngroup_by_length: true\nfp16: true\nbatch_size: 12\n")
    assert "re-measure" in packed.uncertain["batching"]
    said = reasons(packed)
    assert "no lengths left" in said["group_by_length"]
    assert "at most one" in said["fp16"]
    assert "12 is not" in said["batch_size"]
    assert "precision" not in packed.knobs, "a contradiction is no baseline"


@pytest.mark.case("I15")
def test_torchtitans_overrides_and_its_older_keys(tmp_path: Path) -> None:
    found = imported(tmp_path, TITAN, "run.sh")
    assert (found.format, found.ranks, found.accumulation_steps, found.global_batch_size) == ("torchtitan", 2, 4, 16)
    assert found.knobs["activation_checkpointing"] == "full"
    assert found.knobs["compile"] == "default"
    assert found.data == {"sequence_length": 4096}
    older = imported(
        tmp_path,
        '[training]\nbatch_size = 8\nseq_len = 2048\ncompile = true\nmixed_precision_param = "float16"\n'
        '[activation_checkpoint]\nmode = "selective"\n',
        "old.toml",
    )
    assert older.knobs["micro_batch_size"] == 8
    assert "local_batch_size" in reasons(older)["training.batch_size"]
    assert "compile.enable" in reasons(older)["training.compile"]
    assert "float32 and bfloat16" in reasons(older)["training.mixed_precision_param"]


def test_a_command_line_with_launcher_variables_and_comments(tmp_path: Path) -> None:
    text = (
        "# how we train\nexport NCCL_DEBUG=WARN\n"
        "TOKENIZERS_PARALLELISM=true accelerate launch --num_processes 4 train.py \\\n"
        "  --per_device_train_batch_size 2 --gradient_accumulation_steps=4 --bf16 --no_dataloader_pin_memory \\\n"
        "  --model_name_or_path org/name --block_size 512 --learning_rate 5e-5  # tuned by hand\n"
    )
    found = imported(tmp_path, text, "train.sh")
    assert (found.ranks, found.global_batch_size) == (4, 32)
    assert found.knobs["pin_memory"] is False
    assert found.model == {"hub": "org/name"}
    assert found.environment == {"NCCL_DEBUG": "WARN"}
    assert found.problems == ()


def test_a_command_line_never_runs_anything(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = parse_arguments(f"python train.py --output_dir $(touch {mark}) `touch {mark}` --bf16; touch {mark}\n--x 'y")
    assert not mark.exists()
    assert found.problems


@pytest.mark.case("I01", "I02", "I04", "I05", "I07", "I08", "I14", "B07")
@pytest.mark.parametrize(
    ("config", "key", "said"),
    [
        ({**TRAINER, "fp16": True}, "fp16", "at most one"),
        ({**TRAINER, "per_device_train_batch_sise": 4}, "per_device_train_batch_sise", "did you mean"),
        ({**TRAINER, "evaluation_strategy": "no"}, "evaluation_strategy", "eval_strategy"),
        ({**TRAINER, "bf16": "false"}, "bf16", "text, not a boolean"),
        ({**TRAINER, "per_device_train_batch_size": "8"}, "per_device_train_batch_size", "text, not a number"),
        ({**TRAINER, "gradient_accumulation_steps": 0}, "gradient_accumulation_steps", "above 0"),
        ({**TRAINER, "auto_find_batch_size": True}, "auto_find_batch_size", "in silence"),
        ({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 7},
         "train_batch_size", "256 is not 4 x 7"),
        ({"train_batch_size": 16, "fp16": {"enabled": True}, "bf16": {"enabled": True}}, "fp16", "at most one"),
        ({"train_batch_size": 16, "bf16": {"enable": True}}, "bf16.enable", "did you mean 'enabled'"),
        ({"train_batch_size": 16, "bf16": {"enabled": "false"}}, "bf16.enabled", "not a boolean"),
        ({"train_micro_batch_size_per_gpu": "8", "train_batch_size": 8}, "train_micro_batch_size_per_gpu", "not a num"),
        ({"accelerator": "gpu", "max_epochs": 1, "accumulate_grad_batches": "4"}, "accumulate_grad_batches", "text"),
        ({"accelerator": "gpu", "max_epochs": 1, "batch_size": 4}, "batch_size", "DataLoader"),
        ({"accelerator": "gpu", "devices": 1, "accumulate_grad_batches": {"0": 4}}, "accumulate_grad_batches", "sched"),
        ({"distributed_type": "NO", "num_processes": 1, "mixed_precission": "bf16"}, "mixed_precission", "did you"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_listed_with_its_line(config: dict[str, Any], key: str, said: str, tmp_path: Path) -> None:
    found = imported(tmp_path, config)
    assert said in reasons(found)[key]
    line = next(each.line for each in found.problems if each.key == key)
    assert line is not None
    assert key.rpartition(".")[2] in (tmp_path / "config.json").read_text().splitlines()[line - 1]


@pytest.mark.case("I01")
def test_a_contradiction_is_never_a_baseline(tmp_path: Path) -> None:
    assert "precision" not in imported(tmp_path, {**TRAINER, "fp16": True}).knobs
    triangle = {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 7}
    assert imported(tmp_path, triangle).global_batch_size is None
    assert {"where": "global_batch_size", "what": "samples per optimizer step over all ranks"} in init(
        (tmp_path / "config.json",)
    )["fill_in"]


@pytest.mark.case("I18")
def test_an_initial_loss_scale_is_kept_and_said(tmp_path: Path) -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": True, "initial_scale_power": 32}}
    found = imported(tmp_path, config)
    assert any("initial_scale_power 32" in note and "first stable scale" in note for note in found.notes)
    assert "32-bit copy" in found.uncertain["precision"]


@pytest.mark.case("I04")
def test_two_files_of_one_job_are_one_configuration_or_a_contradiction(tmp_path: Path) -> None:
    casting = {"enabled": True, "dtype": "bfloat16"}
    theirs = {"train_batch_size": "auto", "gradient_accumulation_steps": 2, "torch_autocast": casting}
    (tmp_path / "ds.json").write_text(json.dumps(theirs))
    (tmp_path / "args.json").write_text(json.dumps({**TRAINER, "bf16": False, "deepspeed": "ds.json"}))
    made = init((tmp_path / "args.json",))
    assert made["format"] == "hf-trainer + deepspeed", "the file it names is read too"
    assert made["baseline"]["precision"] == "bf16-mixed", "DeepSpeed's file owns the precision"
    assert [each["key"] for each in made["problems"]] == ["accumulation_steps"]
    assert "8 in another, 2 here" in made["problems"][0]["reason"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("training_args.bin", b"\x80\x04", "never opened"),
        ("x.json", b"{", "not JSON"),
        ("x.yaml", b"a: [", "x.yaml:1"),
        ("x.yaml", b"- 1\n- 2\n", "no keys"),
        ("x.yaml", b"what: ever\nelse: 1\n", "name it with --format"),
        ("x.yaml", b"\xff\xfe\x00", "not text"),
        ("x.txt", b"nothing here", "no options"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    if name == "x.txt":
        assert format_of(source_of(tmp_path / name)) is not None, "words without options: a shell file"
        return
    with pytest.raises(ImportRefused, match=said):
        init((tmp_path / name,))


def test_nothing_dangerous_is_constructed(tmp_path: Path) -> None:
    found = imported(tmp_path, "output_dir: !!python/object/apply:os.system ['true']\nbf16: true\nmax_steps: 1\n")
    assert "tag" in reasons(found)["output_dir"]


def test_the_format_can_be_forced_and_is_otherwise_known_by_its_keys(tmp_path: Path) -> None:
    assert imported(tmp_path, {"bf16": True, "learning_rate": 1e-4, "seed": 3}).format == "hf-trainer"
    assert imported(tmp_path, {"gradient_clipping": 1.0}, name="deepspeed").format == "deepspeed"
    with pytest.raises(ImportRefused, match="there are hf-trainer"):
        imported(tmp_path, {"a": 1}, name="nonsense")


@pytest.mark.parametrize("target", FORMATS, ids=lambda each: each.name)
def test_any_plain_value_of_any_key_is_read_without_a_crash(target: Any, tmp_path: Path) -> None:
    wild: tuple[Any, ...] = (None, True, -1, 0, 1.5, "", "auto", "text", [], [1], {}, {"enabled": "x"}, 10**30)
    keys = [*target.marks, *target.known()]
    for value in wild:
        file = tmp_path / "c.json"
        file.write_text(json.dumps(dict.fromkeys(keys, value)))
        found = read_all((source_of(file),), target.name)
        assert found.format
        init((file,), format_name=target.name)


def test_the_spec_is_not_written_over_another_file(tmp_path: Path) -> None:
    imported(tmp_path, TRAINER)
    init((tmp_path / "config.json",), output=tmp_path / "spec.yaml")
    assert init((tmp_path / "config.json",), output=tmp_path / "spec.yaml")["written"], "the same text is no other file"
    (tmp_path / "spec.yaml").write_text("mine: 1\n")
    with pytest.raises(Exception, match="says something else"):
        init((tmp_path / "config.json",), output=tmp_path / "spec.yaml")
