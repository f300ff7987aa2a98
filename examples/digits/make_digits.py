"""Writes scikit-learn's handwritten digits as two NPZ files: `make_digits.py FOLDER`.

train.npz (1,437 rows) and test.npz (360 rows) hold one array a column, the first axis counting rows:
`image`, uint8 [rows, 8, 8] with values 0 to 16, and `label`, int64 [rows].
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

SEED = 20
TRAIN_SHARE = 0.8


def main(folder: Path) -> None:
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(labels))
    cut = int(len(labels) * TRAIN_SHARE)
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", order[:cut]), ("test", order[cut:])):
        path = folder / f"{split}.npz"
        np.savez(path, image=images[rows], label=labels[rows])
        print(f"{path}: {len(rows)} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits"))
