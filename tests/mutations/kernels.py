"""Faults of the loops over bytes: app/codecs/kernels. Their tests are run uncompiled."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="json-integer-2-64",
        where="POST /v1/records/serialize, JSON to any format",
        given="a feature that is declared uint64, with the integer 18446744073709551616",
        right="422 out_of_range",
        wrong="200, and the value is 0",
        patch=Patch("app/codecs/kernels/json/number.py", "_UINT64_LAST = 5", "_UINT64_LAST = 6"),
        tests=("tests/unit/codecs/json/test_json_kinds.py::test_faulty_values_of_every_kind",),
        uncompiled=True,
    ),
    Mutation(
        id="csv-integer-2-63",
        where="POST /v1/records/serialize, CSV to any format",
        given="a column with the field 9223372036854775808",
        right="422 out_of_range, or the exact value if uint64 is declared",
        wrong="200, and the value is -9223372036854775808",
        patch=Patch(
            "app/codecs/kernels/number_fields.py", "elif significand < _SIGN:", "elif significand <= _SIGN:"
        ),
        tests=("tests/unit/codecs/csv/test_csv.py::test_inferred_numbers_are_exact_or_refused",),
        uncompiled=True,
    ),
    Mutation(
        id="tfrecord-checksum-of-third-record",
        where="POST /v1/records/parse, TFRecord to any format",
        given="three short records, and a bit flipped in the payload of the third",
        right="400 corrupt_record with record 2",
        wrong="200 with the changed record",
        patch=Patch(
            "app/codecs/kernels/messages/framing.py",
            "        and _has_crc(data, three + third, crc_3)\n",
            "",
        ),
        tests=(
            "tests/unit/codecs/messages/test_tfrecord.py::test_flipped_bit_is_found_whichever_record_has_it",
        ),
        uncompiled=True,
    ),
    Mutation(
        id="utf8-of-surrogates",
        where="POST /v1/records/serialize, JSON to any format",
        given="a string with the bytes ED A0 80, a surrogate in UTF-8",
        right="400 invalid_utf8 with its offset",
        wrong="200: readers cannot decode the text",
        patch=Patch(
            "app/codecs/kernels/utf8.py",
            "high = 0x9F if lead == 0xED else",
            "high = 0xBF if lead == 0xED else",
        ),
        tests=(
            "tests/unit/codecs/json/test_json_text.py::test_malformed_text_is_refused_where_it_goes_wrong",
        ),
        uncompiled=True,
    ),
    Mutation(
        id="record-index-in-second-block",
        where="POST /v1/datasets/{dataset}/versions?index=true, then GET .../files/{shard}.index",
        given="a shard of several blocks",
        right="the offset of each record in the file",
        wrong="offsets that begin at 0 again with each block",
        patch=Patch(
            "app/codecs/kernels/messages/record_index.py",
            "_write_decimal(out, at, np.uint64(begin + previous))",
            "_write_decimal(out, at, np.uint64(previous))",
        ),
        tests=("tests/unit/codecs/kernels/messages/test_record_index.py",),
        uncompiled=True,
    ),
)
