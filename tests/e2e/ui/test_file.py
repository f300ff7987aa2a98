"""The page for a file in Chromium: files of every kind, and those that mean harm."""

import base64
import io
import json
import zipfile
import zlib
from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import Dialog, Locator, Page

from tests.e2e.ui.looking import Visit
from tests.support.images import encode
from tests.support.service import SSL_CONTEXT
from tests.support.tfrecord_frames import frame

pytestmark = pytest.mark.tools

_MIB = 1024 * 1024
ROWS = [{"id": 1, "name": "ann", "score": 0.5}, {"id": 2, "name": "bob", "score": 1.5}]


def drop(visit: Visit, name: str, data: bytes) -> Page:
    """Open the page, give it a file, and wait for what it says."""
    page = visit.open("/ui/file")
    page.locator("input[type=file]").set_input_files({"name": name, "mimeType": "", "buffer": data})
    page.locator("#findings section").first.wait_for()
    return page


def text_of(page: Page) -> str:
    return page.locator("#findings").inner_text()


def ndjson(rows: list[dict[str, object]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def test_rows_are_shown_and_converted(visit: Visit, tmp_path: Path) -> None:
    page = drop(visit, "rows.ndjson", ndjson(ROWS))
    shown = text_of(page)
    assert all(part in shown for part in ("ndjson", "First rows", "ann", "Statistics", "int64"))
    with page.expect_download() as downloading:
        page.get_by_role("button", name="csv", exact=True).click()
    assert downloading.value.suggested_filename == "rows.csv"
    downloading.value.save_as(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines() == ["id,name,score", "1,ann,0.5", "2,bob,1.5"]
    visit.look("file")


def test_features_are_looked_at_closely(visit: Visit) -> None:
    rows = [
        {"price": float(row), "is_new": row < 300, "name": "ann" if row < 900 else "bob"}
        for row in range(1000)
    ]
    page = drop(visit, "rows.ndjson", ndjson([{**row, **{f"f{n}": 1 for n in range(20)}} for row in rows]))

    def panel(name: str) -> Locator:
        return page.get_by_role("article").filter(has=page.get_by_role("heading", name=name, exact=True))

    panel("price").get_by_role("img", name="Histogram: Values").wait_for()
    assert "Median" in panel("price").inner_text()
    # Of two values with names, no quantiles: how often each is there.
    assert "Median" not in panel("is_new").inner_text()
    assert [line.inner_text().split() for line in panel("is_new").locator("table.top tbody tr").all()] == [
        ["false", "70.0", "%", "700"],
        ["true", "30.0", "%", "300"],
    ]
    assert "90.0 %" in panel("name").inner_text()
    # Behind the twentieth they are lines of a table.
    assert page.get_by_role("article").count() == 20
    others = page.get_by_role("region", name="Statistics of the other features")
    assert [row.inner_text() for row in others.locator("tbody th").all()] == ["f17", "f18", "f19"]
    visit.look("file-statistics")


def test_the_page_without_a_file_has_no_faults_in_any_look(visit: Visit) -> None:
    visit.open("/ui/file")
    visit.look("file-none")


def test_a_damaged_file_is_repaired(visit: Visit, tmp_path: Path) -> None:
    records = [frame(bytes([value]) * 40) for value in range(3)]
    damaged = bytearray(b"".join(records))
    damaged[len(records[0]) + 20] ^= 1
    page = drop(visit, "cut.tfrecord", bytes(damaged))
    shown = text_of(page)
    assert f"{len(records[1])} bytes in 1 place" in shown
    assert f"{len(records[0])}" in page.get_by_role("region", name="Lost").inner_text()
    visit.look("file-damaged")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download the good records").click()
    downloading.value.save_as(tmp_path / "good.tfrecord")
    assert (tmp_path / "good.tfrecord").read_bytes() == records[0] + records[2]


def test_arrays_and_images_are_tensors(visit: Visit) -> None:
    saved = io.BytesIO()
    np.savez(saved, a=np.arange(6).reshape(2, 3), b=np.array([1.5], np.float32))
    page = drop(visit, "arrays.npz", saved.getvalue())
    assert all(part in text_of(page) for part in ("npz", "tensors", "2x3", "[1.5]"))
    assert page.get_by_role("img", name="a as a picture").count() == 1
    page = drop(visit, "picture.png", encode(np.zeros((4, 5, 3), np.uint8), "png"))
    assert all(part in text_of(page) for part in ("png", "4x5x3"))
    assert page.locator("#findings .picture img").evaluate("image => image.naturalWidth") == 5


def test_a_record_of_the_object_detection_api_has_its_boxes(visit: Visit) -> None:
    image = encode(np.zeros((60, 80, 3), np.uint8), "png")
    row = {
        "image/encoded": {"b64": base64.b64encode(image).decode()},
        "image/object/bbox/xmin": [0.25, 0.5],
        "image/object/bbox/ymin": [0.5, 0.0],
        "image/object/bbox/xmax": [0.75, 1.0],
        "image/object/bbox/ymax": [1.0, 0.5],
        "image/object/class/text": ["cat", "dog"],
    }
    url = f"{visit.url}/v1/records/serialize"
    records = httpx.post(url, json=[row], verify=SSL_CONTEXT).raise_for_status().content
    page = drop(visit, "train.record", records)
    drawn = page.locator(".picture svg rect.box")
    assert [[box.get_attribute(side) for side in ("x", "y", "width", "height")] for box in drawn.all()] == [
        ["0.25", "0.5", "0.5", "0.5"],
        ["0.5", "0.0", "0.5", "0.5"],
    ]
    visit.look("file-boxes")


def test_a_dropped_file_is_looked_at(visit: Visit) -> None:
    page = visit.open("/ui/file")
    page.evaluate(
        """() => {
          const given = new DataTransfer();
          given.items.add(new File(["a,b\\n1,2\\n"], "dropped.csv"));
          document.querySelector("form[data-drop]").dispatchEvent(
            new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: given }));
        }"""
    )
    page.locator("#findings section").first.wait_for()
    assert "dropped.csv" in text_of(page)


def test_a_file_is_looked_at_without_javascript(visit: Visit) -> None:
    browser = visit.page.context.browser
    assert browser is not None
    quiet = browser.new_context(java_script_enabled=False)
    try:
        page = quiet.new_page()
        page.goto(f"{visit.url}/ui/file")
        page.locator("input[type=file]").set_input_files(
            {"name": "rows.ndjson", "mimeType": "", "buffer": ndjson(ROWS)}
        )
        page.get_by_role("button", name="Look").click()
        page.get_by_role("heading", name="Statistics").wait_for()
        assert "ann" in text_of(page)
        assert not page.get_by_role("button", name="csv", exact=True).is_visible()
    finally:
        quiet.close()


#: Elements that no page of a file has of its own, whose charts are `svg`.
FOREIGN = "script, img, svg:not(.chart, .share), iframe, object, a[href^='javascript']"
SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'
TURNED = "a\u202egnp.exe\u2066\x1b[2J\x00\x07"


def bomb() -> bytes:
    """A PNG of 4 GiB of pixels in some KiB."""
    row = zlib.compress(bytes(8 * _MIB), 9)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    size = (32768).to_bytes(4, "big")
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size + size + b"\x08\x06\0\0\0") + chunk(b"IDAT", row)
        + chunk(b"IEND", b"")
    )  # fmt: skip


def zip_bomb() -> bytes:
    """A thousand times as large as it seems."""
    saved = io.BytesIO()
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\0v\0" + bytes(300 * _MIB))
    return saved.getvalue()


HOSTILE = {
    "a feature that is a script": (
        "script.ndjson", ndjson([{SCRIPT: 1, IMAGE: SCRIPT, SVG: IMAGE, "href": "javascript:alert(1)"}]),
    ),
    "a file name that is a script": (f"{SCRIPT}.ndjson", ndjson(ROWS)),
    "a file name that is an attribute": ('" autofocus onfocus="alert(1).csv', b"a,b\n1,2\n"),
    "10,000 features": ("many.ndjson", ndjson([{f"feature {n}": n for n in range(10_000)}])),
    "a name of 64 KiB": ("long.ndjson", ndjson([{"n" * 65_000: "v" * 65_000}])),
    "an image that is a bomb": ("bomb.png", bomb()),
    "text that is no UTF-8": ("bad.csv", b"a,b\n\xff\xfe,\xc3\x28\n"),
    "bytes that are no UTF-8": ("bad.tfrecord", frame(b"\xff\xfe\x00<script>\xc3\x28")),
    "text that turns": ("turned.ndjson", ndjson([{TURNED: TURNED}])),
    "an archive that is a bomb": ("bomb.npz", zip_bomb()),
    "a compressed bomb": ("bomb.ndjson.gz", zlib.compress(b'{"x": 1}\n' + b" " * (64 * _MIB), 9, 31)),
    "nesting": ("deep.json", b"[" * 100_000),
    "a page": ("page.html", b"<html><script>alert(1)</script></html>"),
    "nothing": ("empty.tfrecord", b""),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_shown_harmlessly(visit: Visit, case: str) -> None:
    """No dialog, no element of its own, no request, no error on the console, and a page of bearable size."""
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    visit.page.on("dialog", dismiss)
    name, data = HOSTILE[case]
    page = drop(visit, name, data)
    assert dialogs == []
    findings = page.locator("#findings")
    assert findings.locator(FOREIGN).count() == 0
    assert page.evaluate(
        "[...document.querySelectorAll('#findings *')].every(e => "
        "[...e.attributes].every(a => !a.name.startsWith('on') && a.name !== 'autofocus'))"
    )
    shown = findings.inner_text()
    assert not set(shown) & set("\u202e\u2066\x1b\x00\x07")
    assert len(page.content()) < 2 * _MIB
    scrolling = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(scrolling)
    asked = [request.url for request in visit.requests if not request.url.startswith(visit.url)]
    assert asked == []
    visit.check()
