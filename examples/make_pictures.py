"""Draws picture files for the image example: three classes of shapes, as JPEG and PNG, the same ones every time.

    python examples/make_pictures.py [FOLDER] [--per-class N]

The default folder is ``pictures`` beside this file.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

SIZE = 160
SHAPES = ("circle", "square", "triangle")


def main() -> None:
    """Reads the arguments and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "pictures")
    parser.add_argument("--per-class", type=int, default=200)
    arguments = parser.parse_args()
    make_pictures(arguments.folder, per_class=arguments.per_class)


def make_pictures(folder: Path, *, per_class: int) -> None:
    """Writes ``per_class`` pictures of each shape into a folder of its name."""
    numbers = random.Random(0)
    for shape in SHAPES:
        place = folder / shape
        place.mkdir(parents=True, exist_ok=True)
        for index in range(per_class):
            ending = "png" if index % 4 == 3 else "jpg"
            draw(shape, numbers).save(place / f"{index:04}.{ending}", quality=90)


def draw(shape: str, numbers: random.Random) -> Image.Image:
    """One picture: the shape somewhere on a noisy ground."""
    width, height = SIZE + numbers.randrange(80), SIZE + numbers.randrange(80)
    ground = Image.frombytes("L", (width, height), numbers.randbytes(width * height)).convert("RGB")
    pen = ImageDraw.Draw(ground)
    radius = numbers.randrange(25, 60)
    x, y = numbers.randrange(radius, width - radius), numbers.randrange(radius, height - radius)
    colour = tuple(numbers.randrange(256) for _ in range(3))
    if shape == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    else:
        sides = 4 if shape == "square" else 3
        pen.regular_polygon((x, y, radius), sides, rotation=numbers.randrange(360), fill=colour)
    return ground.filter(ImageFilter.GaussianBlur(1))


if __name__ == "__main__":
    main()
