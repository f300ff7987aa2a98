"""What a service holds while its pages are looked at."""

import base64
import io
import json
import math
from typing import Any

import httpx
import numpy as np
from PIL import Image

from tests.support.service import SSL_CONTEXT

JSON = {"Content-Type": "application/json"}


def store_examples(url: str) -> None:
    """`flowers` has images with boxes, `signals` all kinds of features; the splits and versions of `houses`
    differ. The others are as they are called.
    """
    with httpx.Client(base_url=url, timeout=120, verify=SSL_CONTEXT) as client:
        _store_flowers(client)
        _store_signals(client)
        _store_houses(client)
        for count in (40, 25, 60, 90, 30):
            _append(client, "growing", [{"x": k, "y": k / 7} for k in range(count)], publish="true")
        _append(client, "waiting", [{"text": "not yet"}])
        odd = [{"<script>alert(1)</script>": "<img src=x onerror=alert(2)>", "a" * 300: "b" * 5000}]
        _append(client, "odd", odd, publish="true")


def append(url: str, dataset: str, rows: list[Any], *, headers: dict[str, str]) -> None:
    """Store rows, and publish them."""
    with httpx.Client(base_url=url, timeout=120, verify=SSL_CONTEXT, headers=headers) as client:
        _append(client, dataset, rows, publish="true")


def _append(client: httpx.Client, dataset: str, rows: list[Any], **query: str) -> None:
    answer = client.post(
        f"/v1/datasets/{dataset}/records", params=query, content=json.dumps(rows), headers=JSON
    )
    assert answer.status_code == 201, answer.text


def _create(client: httpx.Client, dataset: str, description: str, features: dict[str, Any]) -> None:
    body = {"description": description, "schema": {"features": features}}
    client.put(f"/v1/datasets/{dataset}", json=body).raise_for_status()


def _b64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


def picture(number: int, form: str = "JPEG", size: tuple[int, int] = (160, 120)) -> bytes:
    """A picture: a disc on a gradient."""
    width, height = size
    y, x = np.mgrid[0:height, 0:width]
    hue = (number * 47) % 255
    pixels = np.stack([(x * 255 // width), (y * 255 // height), np.full_like(x, hue)], axis=-1)
    centre = (width * (0.3 + 0.1 * (number % 5)), height * 0.5)
    disc = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < (height / 4) ** 2
    pixels[disc] = (250, 220, 90)
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, form)
    return out.getvalue()


def _store_flowers(client: httpx.Client) -> None:
    names = ["daisy", "dandelion", "rose", "sunflower", "tulip"]
    _create(
        client,
        "flowers",
        "Pictures of flowers, each with its class and a box around it.",
        {
            "id": {"dtype": "text", "shape": []},
            "image": {"dtype": "bytes", "shape": [], "image": {"format": "jpeg", "shape": [None, None, 3]}},
            "label": {"dtype": "int64", "shape": [], "class_names": names},
            "bbox": {"dtype": "float32", "shape": [4]},
        },
    )
    rows = [
        {
            "id": f"flower-{k:04}",
            "image": _b64(picture(k)),
            "label": k % 5,
            "bbox": [0.25, 0.14 + 0.1 * (k % 5), 0.75, 0.46 + 0.1 * (k % 5)],
        }
        for k in range(60)
    ]
    _append(client, "flowers", rows[:45], split="train")
    _append(client, "flowers", rows[45:], split="test", publish="true")


def _store_signals(client: httpx.Client) -> None:
    _create(
        client,
        "signals",
        "One feature of each kind.",
        {
            "wave": {"dtype": "float32", "shape": [None]},
            "grid": {"dtype": "float32", "shape": [12, 16]},
            "pixels": {"dtype": "uint8", "shape": [8, 8, 3]},
            "ragged": {"dtype": "int64", "shape": [None, None], "kind": "ragged"},
            "sparse": {"dtype": "float32", "shape": [100], "kind": "sparse"},
            "note": {"dtype": "text", "shape": [], "nullable": True},
            "blob": {"dtype": "bytes", "shape": []},
            "on": {"dtype": "bool", "shape": []},
            "score": {"dtype": "float64", "shape": [], "encoding": "raw"},
        },
    )
    rows = []
    for k in range(30):
        row: dict[str, Any] = {
            "wave": [math.sin(i / (4 + k)) * math.exp(-i / 200) for i in range(400)],
            "grid": [[math.sin(a / 3 + k) * math.cos(b / 4) for b in range(16)] for a in range(12)],
            "pixels": [[[a * 30, b * 30, (k * 20) % 255] for b in range(8)] for a in range(8)],
            "ragged": [[1, 2, 3], [4], [], [k]],
            "sparse": {"indices": [[3], [40 + k]], "values": [0.5, k / 3]},
            "blob": _b64(bytes(range(40))),
            "on": k % 2 == 0,
            "score": k / 7,
        }
        if k % 3:
            row["note"] = f"Row {k}. " + "All work and no play makes a long text. " * (k % 4 * 6)
        rows.append(row)
    _append(client, "signals", rows, publish="true")


def _store_houses(client: httpx.Client) -> None:
    features = {
        "id": {"dtype": "int64", "shape": []},
        "price": {"dtype": "float32", "shape": [], "nullable": True},
        "rooms": {"dtype": "int64", "shape": []},
        "kind": {"dtype": "int64", "shape": [], "class_names": ["flat", "house", "loft", "<b>tent</b>"]},
        "town": {"dtype": "text", "shape": []},
        "ratings": {"dtype": "int64", "shape": [None]},
        "ground": {"dtype": "int32", "shape": []},
    }
    _create(client, "houses", "What houses cost; the houses of the test are dearer.", features)
    random = np.random.default_rng(7)

    def rows(first: int, count: int, price: float, towns: int, **further: Any) -> list[Any]:
        return [
            {
                "id": first + k,
                "price": None if k % 17 == 3 else round(float(random.lognormal(price, 0.5)), 2),
                "rooms": int(random.poisson(price / 3) + 1),
                "kind": int(random.integers(0, 4)),
                "town": f"town {int(random.integers(0, towns)) ** 2 // towns}",
                "ratings": random.integers(1, 6, int(random.integers(0, 9))).tolist(),
                "ground": int(random.integers(40, 900)),
                **further,
            }
            for k in range(count)
        ]

    _append(client, "houses", rows(0, 3000, 12.0, 9), split="train")
    _append(client, "houses", rows(3000, 800, 12.7, 14), split="test", publish="true")
    more = rows(3800, 900, 12.3, 30, garden=True, ground=70_000)
    _append(client, "houses", more, split="train", evolve="widen", publish="true")
