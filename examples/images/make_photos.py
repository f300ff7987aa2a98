"""Cuts pieces out of scikit-learn's two photographs and writes them as JPEGs: `make_photos.py FOLDER`.

FOLDER/train.tar and FOLDER/test.tar hold files like building/007.jpg and flower/012.jpg: the name of the
folder is the label. The pieces for training come from the left two thirds of each photograph, those for the
test from the rest, so that no pixel is in both.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

SEED = 13
#: Of each photograph.
PIECES = {"train": 96, "test": 24}
#: The shortest and the longest side of a piece, in pixels.
SIDES = (80, 200)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    china, flower = map(Image.fromarray, load_sample_images().images)
    random = np.random.default_rng(SEED)
    for split, count in PIECES.items():
        path = folder / f"{split}.tar"
        with tarfile.open(path, "w") as archive:
            for label, photograph in (("building", china), ("flower", flower)):
                for number in range(count):
                    jpeg = cut(photograph, split, random)
                    member = tarfile.TarInfo(f"{label}/{number:03}.jpg")
                    member.size = len(jpeg)
                    archive.addfile(member, io.BytesIO(jpeg))
        print(f"{path}: {2 * count} photographs")


def cut(photograph: Image.Image, split: str, random: np.random.Generator) -> bytes:
    """A piece of the photograph, as a JPEG."""
    middle = photograph.width * 2 // 3
    left, right = (0, middle) if split == "train" else (middle, photograph.width)
    width, height = (int(side) for side in random.integers(*SIDES, 2, endpoint=True))
    x = int(random.integers(left, right - width, endpoint=True))
    y = int(random.integers(0, photograph.height - height, endpoint=True))
    file = io.BytesIO()
    photograph.crop((x, y, x + width, y + height)).save(file, "JPEG", quality=90)
    return file.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "photos"))
