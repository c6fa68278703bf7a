"""How many ranks a command starts, and what it would execute: known for certain or not named."""

from __future__ import annotations

from typing import Any

import pytest

from objectives.script.executed import executed
from objectives.script.launchers import RanksError, ranks_of


def command(text: str, **settings: Any) -> dict[str, Any]:
    return {"command": text.split(), **settings}


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("python train.py --nproc_per_node 9", 1),
        ("torchrun --nproc_per_node 4 train.py", 4),
        ("torchrun --standalone --nproc-per-node=2 train.py --nproc_per_node 9", 2),
        ("torchrun train.py", 1),
        ("/opt/venv/bin/torchrun --nnodes 1 --nproc_per_node 3 -m package.train", 3),
        ("python -m torch.distributed.run --nproc_per_node=2 train.py", 2),
        ("python3 -m torch.distributed.launch --nproc_per_node=2 train.py", 2),
        ("accelerate launch --multi_gpu --num_processes 2 train.py", 2),
        ("python -m accelerate.commands.launch --num_processes=8 train.py", 8),
    ],
)
def test_the_launchers_own_words_say_the_ranks(text: str, ranks: int) -> None:
    assert ranks_of(command(text)) == ranks


def test_another_launcher_s_ranks_are_said_by_a_key() -> None:
    assert ranks_of(command("deepspeed --num_gpus 4 train.py", ranks=4)) == 4


@pytest.mark.case("B12", "F03")
@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        ("accelerate launch train.py", {}, "nothing says how many ranks"),
        ("accelerate launch --cpu --num_processes 2 train.py", {}, "starts one process, not 2"),
        ("torchrun --nproc_per_node auto train.py", {}, "'auto', not a number of ranks"),
        ("torchrun --nproc_per_node", {}, "not a number"),
        ("torchrun --nnodes 2 --nproc_per_node 8 train.py", {}, "2 machines"),
        ("torchrun --nproc_per_node 2 train.py", {"ranks": 4}, "'ranks' is 4, and the launcher starts 2"),
    ],
)
def test_ranks_that_cannot_be_known_are_refused(text: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(RanksError, match=words):
        ranks_of(command(text, **settings))


@pytest.mark.parametrize(
    ("text", "script", "module"),
    [
        ("python train.py --x 1", "/job/train.py", None),
        ("python -u -W ignore -X dev train.py", "/job/train.py", None),
        ("python3.11 /abs/train.py", "/abs/train.py", None),
        ("python train other.py", "/job/train", None),
        ("python -m package.train x.py", None, "package.train"),
        ("torchrun --standalone --nproc_per_node 2 train.py y.py", "/job/train.py", None),
        ("torchrun --nproc_per_node=2 -m package.train", None, "package.train"),
        ("python -m torch.distributed.run --nproc_per_node 2 train.py", "/job/train.py", None),
        ("accelerate launch --multi_gpu --num_processes 2 train.py", "/job/train.py", None),
        ("python -c print(1) train.py", None, None),
        ("python -cprint(1) train.py", None, None),
        ("python - train.py", None, None),
        ("bash run.sh train.py", None, None),
        ("env X=1 python train.py", None, None),
        ("torchrun --no-python run.sh train.py", None, None),
        ("torchrun --unknown evil train.py", None, None),
        ("accelerate config train.py", None, None),
        ("python {precision} train.py", None, None),
        ("{attention} train.py", None, None),
        ("python", None, None),
    ],
)
def test_what_would_be_executed_is_known_for_certain_or_not_named(
    text: str, script: str | None, module: str | None
) -> None:
    found = executed(command(text, environment={"B": "1", "A": "2"}), "/job")
    assert (found.program, found.script, found.module) == (text.split()[0], script, module)
    assert found.environment == ("A", "B")
