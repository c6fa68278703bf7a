"""Data for the grids, made from what every machine has: docstrings of the standard library, and drawn pictures.

Nothing is downloaded, and the same is made every time.
"""

from __future__ import annotations

import ast
import json
import random
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

FEWEST_CHARACTERS = 40
LEFT_OUT = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib"})
READY = "ready"


def docstrings(folder: Path) -> None:
    """``docstrings.jsonl``: every docstring of the standard library, one a line: short texts of very unlike lengths."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(file for file in root.rglob("*.py") if not LEFT_OUT.intersection(file.relative_to(root).parts))
    with (folder / "docstrings.jsonl").open("w", encoding="utf-8") as out:
        for file in files:
            for text in _docstrings_of(file):
                out.write(json.dumps({"text": text}) + "\n")


def _docstrings_of(file: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text and len(text) >= FEWEST_CHARACTERS:
                yield text


def pictures(folder: Path, *, side: int, per_class: int, classes: int) -> None:
    """JPEG files in class folders: one large noisy square on a noisy ground, its place and colour by class."""
    from PIL import Image, ImageDraw, ImageFilter

    numbers = random.Random(side)
    for label in range(classes):
        place = folder / f"class-{label}"
        place.mkdir(parents=True, exist_ok=True)
        for index in range(per_class):
            width, height = side + numbers.randrange(side // 2), side + numbers.randrange(side // 2)
            ground = Image.frombytes("L", (width, height), numbers.randbytes(width * height)).convert("RGB")
            size = numbers.randrange(side // 4, side // 2)
            x, y = numbers.randrange(width - size), numbers.randrange(height - size)
            colour = (40 + 50 * label, numbers.randrange(256), numbers.randrange(256))
            ImageDraw.Draw(ground).rectangle((x, y, x + size, y + size), fill=colour)
            ground.filter(ImageFilter.GaussianBlur(1)).save(place / f"{index:04}.jpg", quality=90)


MATERIAL: Mapping[str, Callable[[Path], None]] = {
    "docstrings": docstrings,
    "pictures-dev": partial(pictures, side=1300, per_class=24, classes=3),
    "pictures-eval": partial(pictures, side=1500, per_class=16, classes=4),
}
"""What there is, by name."""


def make(name: str, root: Path) -> Path:
    """The folder with this material under ``root``; made if it is not there, or not whole.

    Raises:
        LookupError: There is no such material.
    """
    if name not in MATERIAL:
        raise LookupError(f"no material {name!r}; there is {', '.join(MATERIAL)}")
    folder = root / name
    if not (folder / READY).exists():
        folder.mkdir(parents=True, exist_ok=True)
        MATERIAL[name](folder)
        (folder / READY).touch()
    return folder
