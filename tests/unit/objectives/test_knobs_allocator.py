"""Allocator settings: the two names, what a snapshot shows, and texts that PyTorch would ignore or crash on."""

from __future__ import annotations

import pytest

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.knobs.allocator import ALLOCATOR, VARIABLES, in_effect, validate_allocator_setting


@pytest.mark.case("D07")
@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("expandable_segments=True", "'expandable_segments:True'"),
        ("max_split_size_mb=128", "'max_split_size_mb:128'"),
        ("expandable_segments", "'expandable_segments:VALUE'"),
        ("expandable_segment:True", "did you mean 'expandable_segments'"),
        ("max_split_size:128", "did you mean 'max_split_size_mb'"),
        ("garbage_collection_treshold:0.8", "did you mean 'garbage_collection_threshold'"),
        ("expandable_segments:true", "True or False"),
        ("max_split_size_mb:20", "above 20"),
        ("max_split_size_mb:128MB", "whole number"),
        ("garbage_collection_threshold:80", "between 0 and 1"),
        ("garbage_collection_threshold:high", "between 0 and 1"),
        ("roundup_power2_divisions:[256:1", "list"),
        ("backend:async", "cudaMallocAsync"),
        ("zzz:1", "known are backend"),
        ("expandable_segments:True,max_split_size_mb:128", "do not go together"),
        ("max_split_size_mb:128,max_split_size_mb:256", "twice"),
    ],
)
def test_a_text_the_allocator_would_ignore_or_crash_on_is_refused_with_the_fix(text: str, fix: str) -> None:
    with pytest.raises(ValueError) as caught:
        validate_allocator_setting(text)
    assert fix in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:128,garbage_collection_threshold:0.8",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        " backend:native , throw_on_cudamalloc_oom:True ",
    ],
)
def test_good_texts_pass(text: str) -> None:
    validate_allocator_setting(text)


@pytest.mark.case("D07")
def test_every_choice_sets_both_names_to_one_valid_text() -> None:
    for value in ALLOCATOR.values:
        environment = knobs.environment(TrainingConfig(allocator=str(value)))
        assert set(environment) == set(VARIABLES)
        assert len(set(environment.values())) == 1
        validate_allocator_setting(environment["PYTORCH_ALLOC_CONF"])


def test_default_clears_what_was_inherited() -> None:
    assert knobs.environment(TrainingConfig()) == {"PYTORCH_ALLOC_CONF": "", "PYTORCH_CUDA_ALLOC_CONF": ""}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, None),
        ({"expandable_segments": False, "max_split_size": -1}, "default"),
        ({"expandable_segments": False, "max_split_size": 2**63 - 1}, "default"),
        ({"expandable_segments": False, "max_split_size": 2**64 - 1}, "default"),
        ({"expandable_segments": True, "max_split_size": -1}, "expandable_segments"),
        ({"expandable_segments": False, "max_split_size": 256 * 2**20}, "max_split_size"),
    ],
)
def test_a_snapshot_tells_the_choice(settings: dict[str, object], found: str | None) -> None:
    assert in_effect(settings) == found
