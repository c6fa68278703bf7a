"""Memory known before a run: an ``estimate`` child answers, and a real child of the same configuration agrees."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
from children import PRELOAD, WORKLOADS, finish
from tiny_models import CPU, FAMILIES, causal_lm, write_corpus

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from objectives.estimate import Estimator, predict
from objectives.estimate.storages import StorageCounter
from objectives.preload import preload_modules
from objectives.trial.protocol import Event, Purpose, RunRequest, WindowPlan
from objectives.trial.setup import Setup
from objectives.trial.trainer import Trainer
from objectives.trial.worst_case import run_worst_case
from tuner.search.memory_model import Observation, learn
from tuner.work.launcher import Launcher

MIB = 2**20
BATCH = 8
REAL = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
    "num_attention_heads": 4, "vocab_size": 4096,
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def config(**values: Any) -> TrainingConfig:
    made = TrainingConfig(**values)
    return made.with_values(accumulation_steps=BATCH // made.micro_batch_size)


def request(purpose: Purpose, objective: ObjectiveReference, **more: Any) -> RunRequest:
    short = WindowPlan(min_seconds=0.05, max_seconds=0.05)
    return RunRequest(
        run=str(uuid.uuid4()), purpose=purpose, objective=objective, global_batch_size=BATCH, window=short, **more
    )


def run(launcher: Launcher, folder: Path, wanted: RunRequest) -> list[Event]:
    end, events = finish(launcher.start(wanted, folder / "log"))
    assert end.exit_code == 0, end.log_tail
    return events


def test_a_child_answers_for_every_configuration_it_is_asked(tmp_path: Path) -> None:
    mine = ObjectiveReference(kind="tests_tiny_lm:TinyLM", folder=str(WORKLOADS))
    asked = [
        config(micro_batch_size=size, precision=precision, activation_checkpointing=kind, loss=loss)
        for size in (1, 8)
        for precision in ("fp32", "bf16-mixed")
        for kind in ("none", "full")
        for loss in ("full", "chunked")
    ]
    with Launcher(preload=PRELOAD) as launcher:
        told = run(launcher, tmp_path, request("estimate", mine, answer={"configs": [c.to_mapping() for c in asked]}))
    answers = {TrainingConfig(**e.fields["config"]): e.fields["prediction"] for e in told if e.event == "answer"}
    assert set(answers) == set(asked)
    for prediction in answers.values():
        assert prediction["note"] is None
        assert prediction["peak_memory_bytes"] == sum(prediction["categories"].values()) > 0


@pytest.fixture(scope="module")
def language_model(corpus: Path) -> ObjectiveReference:
    data = {"path": "docs.jsonl", "tokenizer": {"train": {"vocab_size": 400}}, "sequence_length": 128}
    causal_lm(corpus, model={"config": REAL}, data=data).prepare(corpus / "cache")
    settings = {"model": {"config": REAL}, "data": data}
    return ObjectiveReference(kind="causal_lm", settings=settings, folder=str(corpus), cache=str(corpus / "cache"))


def test_the_bar_holds_real_children_and_one_run_corrects_the_next(
    language_model: ObjectiveReference, tmp_path: Path
) -> None:
    wanted = [config(micro_batch_size=2), config(micro_batch_size=8, optimizer="adamw-foreach")]
    with Launcher(preload=preload_modules(language_model)) as launcher:
        asked = request("estimate", language_model, answer={"configs": [each.to_mapping() for each in wanted]})
        answers = [event.fields for event in run(launcher, tmp_path, asked) if event.event == "answer"]
        raw = {TrainingConfig(**told["config"]): told["prediction"]["peak_memory_bytes"] for told in answers}
        measured = {each: measured_peak(launcher, tmp_path, language_model, each) for each in wanted}
    for each in wanted:
        bar = learn([], device_kind="cpu").predict(each, raw[each], limit_bytes=None)
        assert bar.low_bytes <= measured[each] <= bar.high_bytes
        assert raw[each] < measured[each] < raw[each] + 25 * MIB
    first, second = wanted
    seen = Observation(config=first, predicted_bytes=raw[first], measured_bytes=measured[first])
    corrected = learn([seen], device_kind="cpu").predict(second, raw[second], limit_bytes=None)
    assert corrected.mean_bytes == pytest.approx(measured[second], rel=0.03)


def measured_peak(launcher: Launcher, folder: Path, reference: ObjectiveReference, wanted: TrainingConfig) -> int:
    events = run(launcher, folder, request("search", reference, config=wanted.to_mapping()))
    return int(next(event.fields["peak_memory_bytes"] for event in events if event.event == "memory"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_choice_of_a_language_model_is_predicted(corpus: Path, family: str) -> None:
    objective = causal_lm(corpus, model={"config": FAMILIES[family]})
    objective.prepare(corpus / "cache")
    base = config(micro_batch_size=4)
    choices: list[dict[str, Any]] = [
        {"precision": "fp16-mixed"}, {"precision": "bf16-true"}, {"activation_checkpointing": "selective"},
        {"attention": "eager"}, {"attention": "sdpa-math"}, {"loss": "chunked"}, {"batching": "packed"},
        {"optimizer": "adamw-foreach"},
    ]  # fmt: skip
    made = dict(Estimator(objective, device="cpu").predict_all(base.with_values(**choice) for choice in choices))
    assert {prediction.note for prediction in made.values()} == {None}
    assert all(prediction.peak_memory_bytes for prediction in made.values())


def test_adapters_have_gradients_and_state_of_their_own_size(corpus: Path) -> None:
    whole, adapted = (
        predict(causal_lm(corpus, **more), config(micro_batch_size=2, activation_checkpointing="full"), device="cpu")
        for more in ({}, {"lora": {"r": 2}})
    )
    assert adapted.note is None
    assert adapted.categories["parameters"] > whole.categories["parameters"]
    assert adapted.categories["optimizer_state"] < whole.categories["optimizer_state"] / 4


def counted(objective: Any, wanted: TrainingConfig) -> int:
    """The peak of the same steps on real tensors, counted alike."""
    with StorageCounter("cpu") as counter:
        setup = Setup(device=CPU, workload=objective.build(CPU, 0), config=wanted)
        knobs.apply_all(setup)
        trainer = Trainer(setup, max_grad_norm=1.0)
        batch = setup.workload.longest(wanted.micro_batch_size)
        run_worst_case(trainer, batch, accumulation_steps=wanted.accumulation_steps, synchronize=lambda: None)
    return counter.peak.total_bytes


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("values", [{}, {"activation_checkpointing": "full"}, {"precision": "bf16-mixed"}])
def test_fakes_need_what_real_tensors_need(corpus: Path, size: int, values: dict[str, str]) -> None:
    """One row has no padding, so transformers builds no mask; four have one. With fakes it would always build it."""
    wanted = config(micro_batch_size=size, **values)
    objective = causal_lm(corpus, data={"sequence_length": 256})
    made = predict(objective, wanted, device="cpu")
    assert made.peak_memory_bytes == pytest.approx(counted(objective, wanted), rel=0.02)


class Tokens:
    """A user's own workload over a transformers model: random tokens."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def longest(self, micro_batch_size: int) -> torch.Tensor:
        return torch.arange(12).repeat(micro_batch_size, 1)

    def loss(self, model: Any, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
        logits = model(input_ids=batch, use_cache=False).logits.flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits.float(), batch.flatten(), reduction="sum"), batch.numel()


class Experts:
    """A mixture of experts. ``eager`` sends each token where its values say, in pieces no one knows before."""

    unit = "tokens"

    def __init__(self, implementation: str) -> None:
        self.implementation = implementation

    def build(self, device: torch.device, seed: int) -> Tokens:
        from transformers import MixtralConfig, MixtralForCausalLM

        torch.manual_seed(seed)
        shape = MixtralConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
            vocab_size=64, num_local_experts=2, experts_implementation=self.implementation,
        )  # fmt: skip
        with device:
            return Tokens(MixtralForCausalLM._from_config(shape))


@pytest.mark.parametrize("precision", ["fp32", "bf16-true"])
def test_grouped_experts_are_predicted(precision: str) -> None:
    wanted = config(micro_batch_size=4, precision=precision)
    made = predict(Experts("grouped_mm"), wanted, device="cpu")
    assert made.peak_memory_bytes == pytest.approx(counted(Experts("grouped_mm"), wanted), rel=0.02)


def test_tokens_sent_where_their_values_say_cannot_be_predicted() -> None:
    made = predict(Experts("eager"), config(micro_batch_size=4), device="cpu")
    assert made.peak_memory_bytes is None
    assert "only a run can know" in str(made.note)
