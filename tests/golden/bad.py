"""Files that have to be refused: small ones of the corpus of tests/contract/test_faults.py, and some more."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from typing import Any, Final

from tests.corpora.faults import FAULTS, Fault, rows, tensors
from tests.corpora.hostile_bodies import LIES
from tests.golden.entries import Bad, Holds
from tests.support.archives import File, form_of, header_of, tar_of, zip_of

#: Larger ones say nothing that small ones do not.
MOST_BYTES: Final = 4096
SAMPLES: Final[tuple[File, ...]] = (("a.cls", b"1"), ("b.cls", b"2"), ("a.txt", b"1"))
LINK: Final = tar_of(("a.cls", b""), type=tarfile.SYMTYPE, linkname="/etc/passwd")
MORE: Final = [
    tensors(0, "no base64", "b64", b'{"b64": "a"}', "400 invalid_base64"),
    rows(0, "bytes behind base64", "b64", b'{"instances": [{"b64": "AA==AA"}]}', "400 invalid_base64"),
    rows(0, "a line of fewer fields", "csv", b"a,b\n1\n", "400 ragged_line"),
    rows(0, "a quote that is not closed", "csv", b'a,b\n1,"x\n', "400 invalid_csv"),
    rows(0, "a column twice", "csv", b"a,a\n1,2\n", "422 duplicate_feature"),
    rows(0, "no UTF-8", "csv", b"a,b\n1,\xff\n", "400 invalid_utf8"),
    rows(0, "an index of -1", "libsvm", b"1 -1:1\n", "400 invalid_libsvm"),
    rows(0, "an index without a value", "libsvm", b"1 2:\n", "400 invalid_libsvm"),
    rows(0, "no end", "tar", tar_of(*SAMPLES, layout=tarfile.USTAR_FORMAT)[: 6 * 512], "400 truncated"),
    rows(0, "a file cut short", "tar", tar_of(*SAMPLES)[:1100], "400 truncated"),
    rows(0, "a file of 1 TiB", "tar", header_of("a.cls", 2**40), "413 record_too_large"),
    rows(0, "a link", "tar", LINK[:2048], "422 unsupported_member"),
    rows(0, "a sample in two places", "tar", tar_of(*SAMPLES)[:4096], "422 split_sample"),
    rows(0, "an archive cut short", "zip", zip_of(("cat/a.jpg", b"x"))[:-10], "400 invalid_zip"),
    rows(0, "a file twice", "zip", zip_of(*[("cat/a.jpg", b"x")] * 2), "422 duplicate_member"),
    rows(
        0,
        "a form without its end",
        "multipart",
        form_of("cat", ("a.jpg", b"x"))[:-6],
        "400 malformed_multipart",
        boundary="b",
    ),
]


def bad() -> Iterator[Bad]:
    for fault in [*FAULTS, *LIES, *MORE]:
        if fault.form in ("", "example"):
            continue  # a body whose headers say what it is, or a single message, which has no short name
        if isinstance(fault.body, bytes) and len(fault.body) <= MOST_BYTES:
            yield _bad(fault, fault.body)


def _bad(fault: Fault, body: bytes) -> Bad:
    status, code, *_ = fault.answer.split()
    options: dict[str, Any] = {name: value for name, value in fault.params.items() if name != "to"}
    if length := fault.headers.get("Inference-Header-Content-Length"):
        options["json_bytes"] = int(length)
    path = f"bad/{fault.form}-{re.sub(r'[^a-z0-9]+', '-', fault.name.lower()).strip('-')}"
    holds: Holds = "rows" if "/records/" in fault.path else "tensors"
    return Bad(path, body, fault.form, holds, fault.name, int(status), code, options)
