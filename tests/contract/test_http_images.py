"""Images as tensors over a real connection."""

import io
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest

from tests.support.images import animated, cmyk_jpeg, decode, encode, pixels, png_of
from tests.support.tensor_formats import Parts, read

SERIALIZE = "/v1/tensors/serialize"
PARSE = "/v1/tensors/parse"
DESCRIBE = "/v1/tensors/describe"
NOISE = pixels(7, 5, 3)


def sent(client: httpx.Client, path: str, body: bytes, media_type: str, **params: Any) -> httpx.Response:
    return client.post(path, params=params, content=body, headers={"Content-Type": media_type})


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text[:200]
    return answer.status_code, answer.json()["code"]


def tensor(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    parts: Parts = read("tensorproto", "dense", answer)
    return parts[0][1]


@pytest.mark.parametrize(
    ("form", "media_type"),
    [("png", "image/png"), ("webp", "image/webp"), ("bmp", "image/bmp"), ("bmp", "image/x-ms-bmp")],
)
def test_an_image_becomes_the_tensor_proto_of_its_pixels(
    client: httpx.Client, form: str, media_type: str
) -> None:
    body = encode(NOISE, form, **({"lossless": True} if form == "webp" else {}))
    answer = sent(client, SERIALIZE, body, media_type)
    assert answer.headers["content-type"] == "application/protobuf"
    assert (tensor(answer) == NOISE).all()


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/jpg"])
def test_a_jpeg_is_read_under_both_its_names(client: httpx.Client, media_type: str) -> None:
    found = tensor(sent(client, SERIALIZE, encode(NOISE, "jpeg", quality=100), media_type))
    assert (found.dtype, found.shape) == (np.uint8, (7, 5, 3))


def test_channels_and_sixteen_bits(client: httpx.Client) -> None:
    body = encode(NOISE, "png")
    assert tensor(sent(client, SERIALIZE, body, "image/png", channels=1)).shape == (7, 5, 1)
    assert tensor(sent(client, SERIALIZE, body, "image/png", channels=4)).shape == (7, 5, 4)
    wide = np.arange(6, dtype=np.uint16).reshape(2, 3) * 10_000
    answer = sent(client, PARSE, encode(wide, "png"), "image/png", dtype="uint16")
    assert answer.json() == {"dtype": "uint16", "shape": [2, 3, 1], "data": wide.ravel().tolist()}


def test_a_tensor_is_shown_as_a_picture(client: httpx.Client) -> None:
    array = io.BytesIO()
    np.save(array, NOISE)
    headers = {"Content-Type": "application/x-npy", "Accept": "image/png"}
    answer = client.post(PARSE, content=array.getvalue(), headers=headers)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["content-length"] == str(len(answer.content))
    assert (decode(answer.content) == NOISE).all()
    proto = sent(client, SERIALIZE, array.getvalue(), "application/x-npy").content
    sizes = [
        len(client.post(PARSE, params={"to": "jpeg", "quality": q}, content=proto).content) for q in (10, 90)
    ]
    assert sizes[0] < sizes[1]
    answer = client.post(PARSE, params={"to": "image/jpg"}, content=proto)
    assert answer.headers["content-type"] == "image/jpg"
    assert PIL.Image.open(io.BytesIO(answer.content)).format == "JPEG"


def test_an_image_in_is_an_image_out(client: httpx.Client) -> None:
    answer = sent(client, PARSE, encode(NOISE, "bmp"), "image/bmp", to="png")
    assert (decode(answer.content) == NOISE).all()


def test_an_image_is_described(client: httpx.Client) -> None:
    [found] = sent(client, DESCRIBE, encode(NOISE, "png"), "image/png").json()
    assert (found["dtype"], found["shape"], found["max"]) == ("uint8", [7, 5, 3], int(NOISE.max()))


def test_a_larger_image_than_a_small_request(client: httpx.Client) -> None:
    image = pixels(700, 900, 3)
    assert (tensor(sent(client, SERIALIZE, encode(image, "bmp"), "image/bmp")) == image).all()


@pytest.mark.parametrize(
    ("media_type", "body", "params", "expected"),
    [
        ("image/png", encode(NOISE, "jpeg"), {}, (400, "mislabelled_image")),
        ("image/jpeg", b"no image", {}, (400, "not_an_image")),
        ("image/jpeg", b"", {}, (400, "not_an_image")),
        ("image/jpeg", encode(pixels(40, 40, 3), "jpeg")[:-100], {}, (400, "damaged_image")),
        ("image/png", encode(NOISE, "png")[:-20], {}, (400, "not_an_image")),
        ("image/png", png_of(2**30, 2**30), {}, (422, "unsupported_image")),
        ("image/png", png_of(9000, 9000), {}, (413, "amplification_exceeded")),
        ("image/jpeg", cmyk_jpeg(), {"channels": 1}, (422, "unsupported_image")),
        ("image/jpeg", encode(NOISE, "jpeg"), {"channels": 4}, (422, "unsupported_image")),
        ("image/gif", animated("gif"), {}, (422, "unsupported_image")),
        ("image/webp", animated("webp"), {}, (422, "unsupported_image")),
        ("image/png", encode(NOISE, "png"), {"to": "gif"}, (406, "not_acceptable")),
        ("image/png", encode(NOISE, "png"), {"channels": 2}, (400, "invalid_parameter")),
        ("image/png", encode(NOISE, "png"), {"to": "jpeg", "quality": 0}, (400, "invalid_parameter")),
        ("image/png", encode(NOISE, "png"), {"quality": 50}, (400, "inapplicable_parameter")),
        ("application/json", b"[1]", {"channels": 1}, (400, "inapplicable_parameter")),
        ("application/json", b"[1]", {"to": "png"}, (422, "not_expressible")),
        ("image/avif", b"", {}, (415, "unsupported_media_type")),
    ],
)
def test_bad_image_is_a_problem(
    client: httpx.Client, media_type: str, body: bytes, params: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert problem(sent(client, SERIALIZE, body, media_type, **params)) == expected
    # The process that decodes goes on.
    assert tensor(sent(client, SERIALIZE, encode(NOISE, "png"), "image/png")).shape == NOISE.shape


def test_image_for_rows_is_415(client: httpx.Client) -> None:
    answer = sent(client, "/v1/records/serialize", encode(NOISE, "png"), "image/png")
    assert problem(answer) == (415, "unsupported_media_type")
