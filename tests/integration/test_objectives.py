"""The built-in objectives on real tiny transformers models, real text and real pictures; and a user's own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from objectives.causal_lm import CausalLM
from objectives.contract import Objective, ObjectiveError, ObjectiveReference, load_objective
from objectives.data.batching import plan
from objectives.image_classifier import ImageClassifier
from objectives.preload import preload_modules

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "num_key_value_heads": 2, **SMALL},
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 8, **SMALL},
    "gpt2": {
        "model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
    },
}  # fmt: skip
GEMMA = {"model_type": "gemma2", "num_key_value_heads": 2, "head_dim": 8, **SMALL}
LENGTH = 48


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a JSON-lines corpus of very unequal documents, from the standard library's own words."""
    folder = tmp_path_factory.mktemp("corpus")
    words = Path(argparse_source()).read_text(encoding="utf-8").split()
    numbers = np.random.default_rng(1)
    with (folder / "docs.jsonl").open("w", encoding="utf-8") as target:
        for _ in range(120):
            start, size = int(numbers.integers(0, len(words) - 80)), int(numbers.integers(2, 60))
            target.write(json.dumps({"text": " ".join(words[start : start + size])}) + "\n")
    return folder


def argparse_source() -> str:
    spec = importlib.util.find_spec("argparse")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def causal_lm(corpus: Path, *, model: dict[str, Any] | None = None, **more: Any) -> CausalLM:
    data = {
        "path": "docs.jsonl",
        "tokenizer": {"train": {"vocab_size": 400}},
        "sequence_length": LENGTH,
        **more.pop("data", {}),
    }
    model = model if model is not None else {"config": FAMILIES["llama"]}
    return CausalLM(model=model, data=data, folder=str(corpus), cache=str(corpus / "cache"), **more)


def prepared(corpus: Path, **more: Any) -> Any:
    objective = causal_lm(corpus, **more)
    objective.prepare(corpus / "cache")
    return objective.build(CPU, 0)


def gradients(model: torch.nn.Module) -> torch.Tensor:
    found = torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return found


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def accumulate(workload: Any, dataset: Any, *, micro: int, steps: int, batching: str) -> tuple[torch.Tensor, int]:
    """The gradient of one global batch, the sum of losses over the number of units; and that number."""
    lengths = workload.lengths()
    sizes = {"micro_batch_size": micro, "accumulation_steps": steps}
    batch = next(plan(samples=len(dataset), lengths=lengths, batching=batching, **sizes))
    units = 0
    for part in batch:
        loss, count = workload.loss(workload.model, workload.collate([dataset[i] for i in part]))
        loss.backward()
        units += count
    return gradients(workload.model) / units, units


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


@pytest.mark.parametrize("batching", ["padded", "packed"])
def test_tokens_on_the_fly_and_cached_are_the_same_rows(corpus: Path, batching: str) -> None:
    workload = prepared(corpus)
    workload.set_batching(batching)
    workload.set_tokens("on-the-fly")
    fresh = workload.dataset()
    workload.set_tokens("cached")
    cached = workload.dataset()
    assert len(fresh) == len(cached) > 20
    for row in range(len(fresh)):
        np.testing.assert_equal(fresh[row], cached[row])


@pytest.mark.case("E04")
@pytest.mark.parametrize("tokens", ["on-the-fly", "cached"])
def test_forked_loader_workers_read_the_same_batches(corpus: Path, tokens: str) -> None:
    workload = prepared(corpus)  # in this very process: the tokenizer's threads have run before the fork
    workload.set_tokens(tokens)
    dataset = workload.dataset()

    def read(workers: int) -> list[Any]:
        sizes = {"micro_batch_size": 4, "accumulation_steps": 2}
        batches = plan(samples=len(dataset), lengths=None, batching="padded", **sizes)
        micro = chain.from_iterable(islice(batches, 5))
        context = "fork" if workers else None
        loader = DataLoader(
            dataset,
            batch_sampler=list(micro),
            collate_fn=workload.collate,
            num_workers=workers,
            multiprocessing_context=context,
        )
        return list(loader)

    for one, other in zip(read(0), read(2), strict=True):
        assert one["units"] == other["units"]
        assert torch.equal(one["input_ids"], other["input_ids"])


def test_preparing_again_is_quick_and_equal_and_a_changed_corpus_is_new(tmp_path: Path) -> None:
    file = tmp_path / "docs.jsonl"
    file.write_text("".join(json.dumps({"text": f"line {n} of the corpus, with words"}) + "\n" for n in range(50)))
    objective = causal_lm(tmp_path)
    first, second = (objective.prepare(tmp_path / "cache") for _ in range(2))
    strip = {"seconds"}
    assert {k: v for k, v in first.items() if k not in strip} == {k: v for k, v in second.items() if k not in strip}
    rows = objective.build(CPU, 0).dataset()
    with file.open("a") as target:
        target.write(json.dumps({"text": "one more line"}) + "\n")
    third = objective.prepare(tmp_path / "cache")
    assert third["fingerprint"] != first["fingerprint"]
    assert third["rows"] == first["rows"] + 1
    assert len(rows[0]) >= 2  # a run that has begun keeps its data


def test_facts_are_json_and_true(corpus: Path) -> None:
    objective = causal_lm(corpus)
    facts = json.loads(json.dumps(objective.prepare(corpus / "cache"), allow_nan=False))
    workload = objective.build(CPU, 0)
    dataset = workload.dataset()
    counts = [workload.collate([dataset[i]])["units"] for i in range(len(dataset))]
    assert counts == workload.lengths().tolist()
    assert facts["rows"] == len(dataset)
    assert facts["mean_tokens_per_row"]["padded"] == pytest.approx(np.mean(counts))
    workload.set_batching("packed")
    packed = workload.dataset()
    counts = [workload.collate([packed[i]])["units"] for i in range(len(packed))]
    assert counts == workload.lengths().tolist()
    assert facts["mean_tokens_per_row"]["packed"] == pytest.approx(np.mean(counts))
    assert facts["tokenizer"]["vocab_size"] == 400 == workload.model.config.vocab_size
    assert facts["parameters"] == sum(p.numel() for p in workload.model.parameters())
    assert facts["seconds"] > 0


def test_a_trained_tokenizer_is_the_same_every_time(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.py").write_bytes(Path(argparse_source()).read_bytes())
        facts = causal_lm(folder, data={"path": "a.py"}).prepare(folder / "cache")
        texts.append((Path(facts["tokenizer"]["folder"]) / "tokenizer.json").read_text())
    assert texts[0] == texts[1]


def test_the_standard_library_is_a_corpus(tmp_path: Path) -> None:
    data = {"path": "stdlib", "sample_bytes": 300_000, "tokenizer": {"train": {"vocab_size": 1000}}}
    facts = causal_lm(tmp_path, data=data).prepare(tmp_path / "cache")
    assert facts["rows"] > 500
    assert facts["longest_row"] == LENGTH
    assert 2 < facts["characters_per_token"] < 6


def test_long_documents_are_cut_into_pieces_that_cover_them(tmp_path: Path) -> None:
    text = Path(argparse_source()).read_text(encoding="utf-8")
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    workload = prepared(tmp_path, data={"path": "a.txt"})
    rows = workload.dataset()
    tokens = sum(len(rows[i]) for i in range(len(rows)))
    assert max(len(rows[i]) for i in range(len(rows))) == LENGTH
    assert tokens > 0.85 * len(text) / 4


def test_an_empty_corpus_is_refused_with_the_reasons(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"body": "x"}\n{broken\n')
    with pytest.raises(ObjectiveError, match="no text to train a tokenizer"):
        causal_lm(tmp_path).prepare(tmp_path / "cache")
    saved = causal_lm(tmp_path, data={"path": "stdlib", "sample_bytes": 50_000}).prepare(tmp_path / "cache")
    with pytest.raises(ObjectiveError, match=r"no text to train on .*docs\.jsonl:1: no field 'text' \(keys: body\)"):
        causal_lm(tmp_path, data={"tokenizer": saved["tokenizer"]["folder"]}).prepare(tmp_path / "cache")


def test_data_before_preparation_says_what_to_do(tmp_path: Path) -> None:
    workload = causal_lm(tmp_path).build(CPU, 0)  # the model needs none
    assert workload.model.config.vocab_size == 400
    assert workload.longest(2)["input_ids"].shape == (2, LENGTH)
    with pytest.raises(ObjectiveError, match=r"call prepare\(cache\)"):
        workload.dataset()


def test_token_files_need_no_tokenizer_and_have_no_tokens_knob(tmp_path: Path) -> None:
    (np.arange(5000) % 300).astype(np.uint16).tofile(tmp_path / "t.bin")
    data = {"path": "t.bin", "tokenizer": None}
    config = {**FAMILIES["llama"], "vocab_size": 300}
    workload = prepared(tmp_path, model={"config": config}, data=data)
    assert not hasattr(workload, "set_tokens")
    dataset = workload.dataset()
    loss, count = workload.loss(workload.model, workload.collate([dataset[0], dataset[1]]))
    assert count == int(workload.lengths()[:2].sum())
    assert float(loss.detach()) / count == pytest.approx(np.log(300), rel=0.1)
    with pytest.raises(ObjectiveError, match="vocabulary of 299 is too small for token 299"):
        prepared(tmp_path, model={"config": {**config, "vocab_size": 299}}, data=data)
    with pytest.raises(ObjectiveError, match="give `vocab_size`"):
        prepared(tmp_path, data=data)


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


def test_longest_follows_the_data_where_all_documents_are_short(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text(
        "".join(json.dumps({"text": f"a short line {n}"}) + "\n" for n in range(40)), encoding="utf-8"
    )
    workload = prepared(tmp_path)
    longest = max(len(row) for row in (workload.dataset()[i] for i in range(40)))
    assert workload.longest(2)["input_ids"].shape == (2, longest)
    workload.set_batching("packed")
    assert workload.longest(2)["input_ids"].shape == (2, LENGTH)


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


SHAPES = {
    "vit": {"model_type": "vit", "patch_size": 8, **SMALL},
    "convnext": {"model_type": "convnext", "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]},
    "resnet": {"model_type": "resnet", "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "embedding_size": 8},
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    script = ROOT / "examples" / "make_pictures.py"
    subprocess.run([sys.executable, str(script), str(folder / "pictures"), "--per-class", "8"], check=True)
    return folder


def classifier(pictures: Path, config: dict[str, Any], **data: Any) -> ImageClassifier:
    return ImageClassifier(
        model={"config": config},
        data={"path": "pictures", "image_size": 32, **data},
        folder=str(pictures),
        cache=str(pictures / "cache"),
    )


@pytest.mark.parametrize(
    ("family", "methods"),
    [("vit", {"checkpoint_blocks", "set_attention"}), ("convnext", set()), ("resnet", set())],
)
def test_image_classifiers_train_on_real_files(pictures: Path, family: str, methods: set[str]) -> None:
    objective = classifier(pictures, SHAPES[family])
    facts = json.loads(json.dumps(objective.prepare(pictures / "cache")))
    assert (facts["rows"], facts["classes"]) == (24, 3)
    workload = objective.build(CPU, 0)
    assert {name for name in ("checkpoint_blocks", "set_attention") if hasattr(workload, name)} == methods
    assert workload.model.config.num_labels == 3
    dataset = workload.dataset()
    loader = DataLoader(
        dataset, batch_size=6, collate_fn=workload.collate, num_workers=2, multiprocessing_context="fork"
    )
    batches = list(loader)
    assert sum(len(batch["labels"]) for batch in batches) == 24
    assert batches[0]["pixel_values"].shape == workload.longest(6)["pixel_values"].shape == (6, 3, 32, 32)
    loss, count = workload.loss(workload.model, batches[0])
    loss.backward()
    assert count == 6
    assert float(loss.detach()) / 6 == pytest.approx(np.log(3), rel=0.6)
    assert gradients(workload.model).norm() > 0


def test_image_gradients_do_not_depend_on_the_split(pictures: Path) -> None:
    objective = classifier(pictures, SHAPES["vit"])
    objective.prepare(pictures / "cache")
    workload = objective.build(CPU, 0)
    samples = [workload.dataset()[i] for i in range(8)]
    found = []
    for micro in (8, 2, 1):
        for start in range(0, 8, micro):
            workload.loss(workload.model, workload.collate(samples[start : start + micro]))[0].backward()
        found.append(gradients(workload.model))
    assert max(distance(one, found[0]) for one in found) < 2e-6


def test_image_attention_and_channels_last(pictures: Path) -> None:
    vit = classifier(pictures, SHAPES["vit"]).build(CPU, 0)
    vit.set_attention("eager")
    assert vit.model.config._attn_implementation == "eager"
    convnext = classifier(pictures, SHAPES["convnext"]).build(CPU, 0)
    convnext.model.to(memory_format=torch.channels_last)
    batch = convnext.longest(2)
    batch["pixel_values"] = batch["pixel_values"].to(memory_format=torch.channels_last)
    assert convnext.loss(convnext.model, batch)[0].isfinite()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({**SHAPES["vit"], "num_labels": 2}, "2 labels, but .* has 3 class folders"),
        ({**SHAPES["vit"], "image_size": 64}, "32, but the model wants pictures of 64"),
        (FAMILIES["llama"], "llama cannot be built"),
    ],
)
def test_image_models_that_do_not_fit_their_pictures_are_refused(
    pictures: Path, config: dict[str, Any], text: str
) -> None:
    with pytest.raises(ObjectiveError, match=text):
        classifier(pictures, config).prepare(pictures / "cache")


def test_the_example_of_a_users_own_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "own_objective"))
    objective = load_objective(ObjectiveReference(kind="forecaster:Forecaster", settings={"width": 8, "history": 16}))
    assert isinstance(objective, Objective)
    workload: Any = objective.build(CPU, 0)
    dataset = workload.dataset()
    batch = workload.collate([dataset[i] for i in range(4)])
    loss, count = workload.loss(workload.model, batch)
    loss.backward()
    assert (count, len(workload.checkpoint_blocks())) == (4, 3)
    assert workload.longest(4)["history"].shape == batch["history"].shape
    with pytest.raises(ObjectiveError, match="refuses its settings"):
        load_objective(ObjectiveReference(kind="forecaster:Forecaster", settings={"wdth": 8}))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("causal_lm", {"model": {"config": FAMILIES["llama"]}, "lora": {"r": 2}}),
        ("image_classifier", {"model": {"config": SHAPES["vit"]}}),
    ],
)
def test_preloading_starts_no_thread_and_leaves_little_to_import(kind: str, settings: dict[str, Any]) -> None:
    names = preload_modules(ObjectiveReference(kind=kind, settings=settings))
    code = (
        f"import importlib, os, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        "assert len(os.listdir('/proc/self/task')) == 1, 'threads'\n"
        "assert not [m for m in sys.modules if m.startswith(('pyarrow', 'transformers.trainer'))]\n"
    )
    quiet = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
