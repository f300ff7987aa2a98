"""Answers that several routes give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final
from urllib.parse import quote

from fastapi import Request

from ..codecs.forms import MEDIA_TYPES, TAB_SEPARATED, FormName
from ..codecs.options import ArrowFormat, RecordsEncodeOptions
from ..domain.limits import KIB
from ..domain.losses import Losses
from ..domain.manifest import Manifest, ManifestJson
from ..services.convert.records import ConvertedRecords
from ..services.datasets.publications import UnderwayJson
from ..services.datasets.publish.progress import ProgressJson
from ..services.datasets.version_statistics import ComputingJson
from ..transforms.apply import SkippedRows
from .base_url import base_url
from .downloads.loader_lines import loader_lines
from .execution.job import Answer
from .negotiation import JSON_LENGTH, Chosen

#: Ranges in a header: some 4 KiB of digits at most, half of what servers commonly allow for all.
_NAMED_RANGES: Final = 100
_NAMED_BYTES: Final = 4 * KIB
#: Of every answer whose form was negotiated, and of one that may be encoded.
VARY: Mapping[str, str] = {"Vary": "Accept, Accept-Encoding"}
_VARY_ENCODING: Mapping[str, str] = {"Vary": "Accept-Encoding"}


class VersionJson(ManifestJson):
    """A published version; `load` has lines that load it, by what they are for."""

    load: dict[str, str]


def arrow_format(chosen: Chosen[FormName]) -> ArrowFormat:
    """Which of its two formats Arrow leaves in: the media type says."""
    return "file" if chosen.media_type == MEDIA_TYPES["arrow"][1] else "stream"


def records_options(options: RecordsEncodeOptions, chosen: Chosen[FormName]) -> RecordsEncodeOptions:
    """With what the media type says of the answer."""
    delimiter = "\t" if chosen.media_type == TAB_SEPARATED else ","
    return replace(options, arrow=arrow_format(chosen), delimiter=delimiter)


def json_answer(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A JSON document, with a newline at its end for people at a terminal."""
    body = json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    return Answer("application/json", iter([body]), {**_VARY_ENCODING, **(headers or {})}, status=status)


def underway_answer(value: UnderwayJson | ProgressJson, location: str) -> Answer:
    """202: a publication goes on, and can be followed at `location`."""
    headers = {"Location": f"/v1/datasets/{location}", "Retry-After": "1"}
    return json_answer(value, status=202, headers=headers)


def computing_answer(value: ComputingJson) -> Answer:
    """202: statistics are being found; the same request follows that."""
    return json_answer(value, status=202, headers={"Retry-After": "1"})


def manifest_json(manifest: Manifest, request: Request) -> VersionJson:
    """A manifest, and the lines by which this client loads the version."""
    return {**manifest.to_json(), "load": loader_lines(manifest, base_url(request))}


def description_answer(body: bytes, media_type: str, *, dropped: Sequence[str] = ()) -> Answer:
    """A description; text says its charset, as JSON need not."""
    charset = "; charset=utf-8" if media_type.startswith("text/") else ""
    return Answer(media_type + charset, iter([body]), {**VARY, **dropped_headers(dropped)})


def no_content() -> Answer:
    """204."""
    return Answer("", iter(()), status=204)


def lost_headers(losses: Losses) -> dict[str, str]:
    """What was lost of a damaged body: how many bytes, and the first ranges of them."""
    if not losses.num_ranges:
        return {"Lost-Bytes": "0"}
    ranges = ", ".join(map(str, losses.ranges[:_NAMED_RANGES]))
    more = ", ..." if losses.num_ranges > _NAMED_RANGES else ""
    return {"Lost-Bytes": str(losses.num_bytes), "Lost-Ranges": ranges + more}


def rounded_headers(names: Sequence[str]) -> dict[str, str]:
    """Which features were rounded."""
    return _naming_headers("Rounded-Features", names)


def dropped_headers(names: Sequence[str]) -> dict[str, str]:
    """Which features were left out, since no row has a value of them."""
    return _naming_headers("Dropped-Features", names)


def _naming_headers(header: str, names: Sequence[str]) -> dict[str, str]:
    """The names, percent-encoded; as many as a header holds."""
    if not names:
        return {}
    encoded = [quote(name) for name in names]
    ends = accumulate(len(name) + len(", ") for name in encoded)
    fitting = sum(end <= _NAMED_BYTES for end in ends)
    more = [] if fitting == len(encoded) else ["..."]
    return {header: ", ".join(encoded[:fitting] + more)}


def skipped_headers(skipped: SkippedRows | None) -> dict[str, str]:
    """How many rows were left out, where they may be."""
    return {} if skipped is None else {"Skipped-Rows": str(skipped.count)}


def json_length_header(json_bytes: int | None) -> dict[str, str]:
    """What an answer of JSON and then bytes needs to be read."""
    return {} if json_bytes is None else {JSON_LENGTH: str(json_bytes)}


def records_answer(
    converted: ConvertedRecords,
    media_type: str,
    *,
    losses: Losses | None = None,
    skipped: SkippedRows | None = None,
) -> Answer:
    """Rows in the form that was negotiated, with their count as soon as it is known."""
    count, rounded = converted.count, converted.rounded
    known = {} if converted.num_rows is None else {"Record-Count": str(converted.num_rows)}
    return Answer(
        media_type,
        converted.chunks,
        {
            **VARY,
            **known,
            **json_length_header(converted.json_bytes),
            **dropped_headers(converted.dropped),
            **_naming_headers("Text-Features", converted.as_text),
        },
        late_headers=lambda: {
            "Record-Count": str(count.value),
            **({} if losses is None else lost_headers(losses)),
            **skipped_headers(skipped),
            **rounded_headers(rounded.names),
        },
        early_headers=lambda: rounded_headers(rounded.candidates),
    )
