"""The language-model objective on real tiny transformers models: losses, batches, switches, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import CPU, FAMILIES, GEMMA, LENGTH, accumulate, causal_lm, distance, gradients, prepared, write_corpus
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from objectives.contract import ObjectiveError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.case("B01", "B02")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batching", ["padded", "length-grouped", "packed"])
def test_any_split_of_a_global_batch_gives_the_same_gradient(corpus: Path, family: str, batching: str) -> None:
    workload = prepared(corpus, model={"config": FAMILIES[family]})
    workload.set_batching(batching)
    dataset = workload.dataset()
    wanted, units = accumulate(workload, dataset, micro=8, steps=1, batching=batching)
    targets = workload.lengths()
    assert units == int(targets[:8].sum())
    for loss in ("full", "chunked"):
        workload.set_loss(loss)
        for micro in (8, 4, 2, 1):
            found, count = accumulate(workload, dataset, micro=micro, steps=8 // micro, batching=batching)
            assert count == units
            assert distance(found, wanted) < 2e-6, (loss, micro)


@pytest.mark.case("B01")
def test_the_mean_of_means_would_have_been_seen(corpus: Path) -> None:
    workload = prepared(corpus)
    dataset = workload.dataset()
    wanted, _ = accumulate(workload, dataset, micro=8, steps=1, batching="padded")
    for row in range(8):
        loss, count = workload.loss(workload.model, workload.collate([dataset[row]]))
        (loss / count / 8).backward()
    assert distance(gradients(workload.model), wanted) > 0.05


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_documents_are_answered_as_if_alone(corpus: Path, family: str, attention: str) -> None:
    workload = prepared(corpus, model={"config": FAMILIES[family]})
    workload.set_attention(attention)
    workload.set_batching("packed")
    rows = workload.dataset()
    several = [rows[i] for i in range(len(rows)) if len(rows[i]) > 2][:3]
    assert len(several) == 3
    workload.model.eval()
    packed = workload.model(**workload._inputs(workload.collate(several)), use_cache=False).logits
    for place, documents in enumerate(several):
        start = 0
        for document in documents:
            alone = workload.model(input_ids=torch.from_numpy(document)[None], use_cache=False).logits[0]
            torch.testing.assert_close(packed[place, start : start + len(document)], alone, rtol=1e-4, atol=1e-5)
            start += len(document)


def test_packed_and_padded_sum_to_the_same_loss(corpus: Path) -> None:
    workload = prepared(corpus)
    sums: dict[str, tuple[float, int]] = {}
    for batching in ("padded", "packed"):
        workload.set_batching(batching)
        dataset = workload.dataset()
        parts = [workload.loss(workload.model, workload.collate([dataset[i]])) for i in range(len(dataset))]
        sums[batching] = (sum(float(loss.detach()) for loss, _ in parts), sum(count for _, count in parts))
    assert sums["padded"][1] == sums["packed"][1]
    assert sums["padded"][0] == pytest.approx(sums["packed"][0], rel=1e-5)


def test_a_model_that_lets_documents_see_each_other_is_refused(corpus: Path) -> None:
    bloom = {"model_type": "bloom", "hidden_size": 32, "n_layer": 2, "n_head": 4}
    workload = prepared(corpus, model={"config": bloom})
    with pytest.raises(ValueError, match=r"Bloom.* cannot take packed batches: "):
        workload.set_batching("packed")


def test_a_model_that_caps_its_logits_is_not_chunked(corpus: Path) -> None:
    workload = prepared(corpus, model={"config": GEMMA})
    with pytest.raises(ValueError, match=r"cannot be chunked: .*softcapping"):
        workload.set_loss("chunked")
    assert workload.in_effect()["loss"] == "full"
    uncapped = prepared(corpus, model={"config": {**GEMMA, "final_logit_softcapping": None}})
    uncapped.set_loss("chunked")


@pytest.mark.parametrize("kind", ["cohere", "granite"])
def test_a_model_that_scales_its_logits_is_chunked_with_the_scale(corpus: Path, kind: str) -> None:
    extra = {"logit_scale": 0.25} if kind == "cohere" else {"logits_scaling": 4.0}
    workload = prepared(corpus, model={"config": {**FAMILIES["llama"], "model_type": kind, **extra}})
    dataset = workload.dataset()
    wanted, _ = accumulate(workload, dataset, micro=4, steps=1, batching="padded")
    workload.set_loss("chunked")
    found, _ = accumulate(workload, dataset, micro=4, steps=1, batching="padded")
    assert distance(found, wanted) < 2e-6


def test_chunked_never_holds_all_logits(corpus: Path) -> None:
    workload = prepared(corpus)
    batch = workload.collate([np.arange(LENGTH)] * 32)
    whole = 32 * LENGTH * 400

    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor):
                self.numbers = max(self.numbers, made.numel())
            return made

    largest = {}
    for name in ("full", "chunked"):
        workload.set_loss(name)
        with Largest() as seen:
            workload.loss(workload.model, batch)[0].backward()
        largest[name] = seen.numbers
    assert largest["full"] == whole
    assert largest["chunked"] <= whole / 4


def test_switching_back_from_chunked_restores_the_model(corpus: Path) -> None:
    workload = prepared(corpus)
    head = workload.model.lm_head
    workload.set_loss("chunked")
    workload.set_loss("chunked")
    workload.set_loss("full")
    assert workload.model.lm_head is head


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_come_from_the_seed_alone(corpus: Path, family: str) -> None:
    objective = causal_lm(corpus, model={"config": FAMILIES[family]})
    objective.prepare(corpus / "cache")
    one, same, other = (list(objective.build(CPU, seed).model.parameters()) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(parameter.dtype == torch.float32 for parameter in one)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batching", ["padded", "packed"])
def test_longest_is_the_worst_case_and_works_with_fake_tensors(corpus: Path, family: str, batching: str) -> None:
    objective = causal_lm(corpus, model={"config": FAMILIES[family]})
    objective.prepare(corpus / "cache")
    workload = objective.build(torch.device("meta"), 0)
    workload.set_batching(batching)
    workload.set_loss("chunked")
    batch = workload.longest(3)
    assert batch["input_ids"].shape == (3, LENGTH)
    real = workload.dataset()
    sizes = [workload.collate([real[i] for i in range(n, n + 3)])["input_ids"].numel() for n in range(0, 30, 3)]
    assert max(sizes) <= batch["input_ids"].numel()
    if batching == "padded":
        assert 0 in batch["attention_mask"]  # padding, so that attention gets the mask that real batches have
    with FakeTensorMode(allow_non_fake_inputs=True) as fakes:
        make_fake(workload.model)
        placed = {k: fakes.from_tensor(v) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
        loss, count = workload.loss(workload.model, placed)
        loss.backward()
    assert (loss.shape, loss.dtype, count) == ((), torch.float32, batch["units"])


def make_fake(model: torch.nn.Module) -> None:
    """Replaces what is on meta by fakes on the CPU, as the prediction of memory does."""
    made: dict[int, Any] = {}
    for module in model.modules():
        for name, value in module._parameters.items():
            if value is not None:
                fake = torch.nn.Parameter(torch.empty(value.shape, dtype=value.dtype))
                module._parameters[name] = made.setdefault(id(value), fake)
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = torch.empty(value.shape, dtype=value.dtype)


def test_adapters_train_alone_and_every_switch_still_works(corpus: Path) -> None:
    lora = {"r": 2, "alpha": 4, "target_modules": ["q_proj", "v_proj"]}
    workload = prepared(corpus, lora=lora)
    trained = [name for name, parameter in workload.model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    assert len(workload.checkpoint_blocks()) == 2
    dataset = workload.dataset()
    wanted, _ = accumulate(workload, dataset, micro=4, steps=1, batching="padded")
    workload.set_loss("chunked")
    workload.set_attention("eager")
    found, _ = accumulate(workload, dataset, micro=4, steps=1, batching="padded")
    assert distance(found, wanted) < 1e-5
    with pytest.raises(ObjectiveError, match=r"objective\.lora: .*target"):
        causal_lm(corpus, lora={**lora, "target_modules": ["nowhere"]}).build(CPU, 0)
    with pytest.raises(ObjectiveError, match="r, alpha, target_modules"):
        causal_lm(corpus, lora={"rank": 2})


def test_attention_that_cannot_run_says_why_and_changes_nothing(corpus: Path) -> None:
    workload = prepared(corpus)
    with pytest.raises((ImportError, ValueError), match="flash"):
        workload.set_attention("flash_attention_2")
    assert workload.attention == "sdpa"


def test_models_from_a_local_folder(corpus: Path, tmp_path: Path) -> None:
    made = prepared(corpus)
    made.model.save_pretrained(tmp_path / "model")
    workload = prepared(corpus, model={"path": str(tmp_path / "model")})
    for one, other in zip(made.model.parameters(), workload.model.parameters(), strict=True):
        assert torch.equal(one, other)
    torch.save(made.model.state_dict(), tmp_path / "model" / "pytorch_model.bin")
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(ObjectiveError, match="unpickling"):
        causal_lm(corpus, model={"path": str(tmp_path / "model")}).build(CPU, 0)


def test_a_hub_name_uses_the_snapshot_and_nothing_but_safe_files(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--org--tiny"
    prepared(corpus).model.save_pretrained(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    objective = causal_lm(corpus, model={"hub": "org/tiny"})
    assert objective.prepare(corpus / "cache")["model_folder"] == str(repository / "snapshots" / commit)
    assert objective.build(CPU, 0).model.config.vocab_size == 400
    with pytest.raises(ObjectiveError, match="'org/gone' is no folder here and cannot be had from the hub"):
        causal_lm(corpus, model={"hub": "org/gone"}).prepare(corpus / "cache")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"model_type": "lama"}, "unknown 'lama'. Did you mean .*llama"),
        ({"model_type": "vit"}, "vit cannot be built"),
        ({**FAMILIES["llama"], "num_attention_heads": 5}, "llama refuses these values: .*not a multiple of the number"),
        ({**FAMILIES["llama"], "hidden_size": "wide"}, "llama refuses these values: .*hidden_size"),
        ({**FAMILIES["gpt2"], "n_positions": 16}, "48 tokens, but the model has positions for 16 .`n_positions`"),
    ],
)
def test_models_that_cannot_be_are_refused_in_plain_words(corpus: Path, config: dict[str, Any], text: str) -> None:
    with pytest.raises(ObjectiveError, match=text):
        causal_lm(corpus, model={"config": config}).build(CPU, 0)


def test_positions_follow_the_sequence_length_when_left_out(corpus: Path) -> None:
    data = {"sequence_length": 1500}
    assert (
        causal_lm(corpus, model={"config": FAMILIES["gpt2"]}, data=data).build(CPU, 0).model.config.n_positions == 1500
    )


def test_flash_attention_gets_packed_rows_as_one_line(corpus: Path) -> None:
    """transformers' flash attention separates documents within a single row only (``_is_packed_sequence``)."""
    workload = prepared(corpus)
    workload.set_batching("packed")
    rows = workload.dataset()
    batch = workload.collate([rows[0], rows[1]])
    assert workload._inputs(batch)["input_ids"].shape == (2, LENGTH)
    workload._base.config._attn_implementation_internal = "flash_attention_2"
    inputs = workload._inputs(batch)
    assert inputs["input_ids"].shape == inputs["position_ids"].shape == (1, 2 * LENGTH)
    assert batch["targets"].flatten().shape == inputs["input_ids"].flatten().shape
