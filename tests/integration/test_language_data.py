"""The language model's data: prepared once, the same rows however they are read, refused in plain words."""

from __future__ import annotations

import json
import pickle
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import CPU, FAMILIES, LENGTH, argparse_source, causal_lm, prepared, write_corpus
from torch.utils.data import DataLoader

from objectives.contract import ObjectiveError
from objectives.data.batching import plan


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


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

    assert pickle.loads(pickle.dumps(workload.collate)) == workload.collate  # no model goes along
    assert len(pickle.loads(pickle.dumps(dataset))) == len(dataset)

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


def test_longest_follows_the_data_where_all_documents_are_short(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text(
        "".join(json.dumps({"text": f"a short line {n}"}) + "\n" for n in range(40)), encoding="utf-8"
    )
    workload = prepared(tmp_path)
    longest = max(len(row) for row in (workload.dataset()[i] for i in range(40)))
    assert workload.longest(2)["input_ids"].shape == (2, longest)
    workload.set_batching("packed")
    assert workload.longest(2)["input_ids"].shape == (2, LENGTH)
