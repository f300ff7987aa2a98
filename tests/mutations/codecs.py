"""Faults of formats and of how values are read: app/codecs."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="csv-integer-beyond-2-53",
        where="POST /v1/records/serialize, CSV to TFRecord",
        given="a column that is declared float64, with the field 9007199254740993",
        right="422 inexact_integer: float64 does not hold it",
        wrong="200, and the value is 9007199254740992",
        patch=Patch("app/codecs/csv/fields.py", "(integers > exact)", "(integers > exact + 1)"),
        tests=("tests/unit/codecs/csv/test_csv.py::test_inferred_numbers_are_exact_or_refused",),
    ),
    Mutation(
        id="csv-error-row-of-nullable-column",
        where="POST /v1/records/serialize, CSV to TFRecord",
        given="a nullable int64 column: an empty field in row 0, and a word in row 1",
        right="400 with row 1",
        wrong="400 with row 0: rows without a field are not counted",
        patch=Patch(
            "app/codecs/csv/fields.py",
            "error.index if present is None else int(np.flatnonzero(present)[error.index])",
            "error.index",
        ),
        tests=("tests/unit/codecs/csv/test_csv.py::test_rows_are_counted_from_piece_to_piece",),
    ),
    Mutation(
        id="csv-empty-line-of-one-column",
        where="POST /v1/records/serialize, CSV to any format",
        given="a CSV of one column with an empty line between two values",
        right="three rows, of which the second has no value",
        wrong="two rows: one is lost",
        patch=Patch(
            "app/codecs/csv/lines.py", "ignore_empty_lines=self._width > 1", "ignore_empty_lines=True"
        ),
        tests=("tests/unit/codecs/csv/test_csv.py::test_one_column_has_a_row_for_an_empty_line",),
    ),
    Mutation(
        id="csv-negative-zero",
        where="POST /v1/records/serialize, CSV to TFRecord",
        given="a column that is declared float64, with the fields -0 and 1.5",
        right="-0.0, with its sign",
        wrong="0.0",
        patch=Patch(
            "app/codecs/csv/fields.py",
            "doubles[kinds == NEGATIVE_ZERO] = -0.0",
            "doubles[kinds == NEGATIVE_ZERO] = 0.0",
        ),
        tests=("tests/unit/codecs/csv/test_csv.py::test_column_dtype_is_inferred",),
    ),
    Mutation(
        id="libsvm-late-index-equals-size",
        where="POST /v1/records/serialize, LibSVM to any format",
        given="a row after the first 1,000 with an index equal to the size that those have",
        right="409 with that row: the index is beyond the feature",
        wrong="200: an index outside of the shape is stored",
        patch=Patch(
            "app/codecs/csv/libsvm.py", "(wrong := block.indices >= size)", "(wrong := block.indices > size)"
        ),
        tests=("tests/unit/codecs/csv/test_libsvm.py::test_rows_are_held_to_a_declared_schema",),
    ),
    Mutation(
        id="json-text-of-2-64",
        where="POST /v1/records/serialize, JSON to TFRecord",
        given='a feature that is declared uint64, with the digits "18446744073709551616" in a string',
        right="422 out_of_range",
        wrong="200, and the value is 0",
        patch=Patch(
            "app/codecs/json/items.py",
            "[not INT64.bounds[0] <= number < 1 << 64 for",
            "[not INT64.bounds[0] <= number <= 1 << 64 for",
        ),
        tests=("tests/unit/codecs/json/test_json_kinds.py::test_faulty_values_of_every_kind",),
    ),
    Mutation(
        id="ndjson-error-offset-in-second-block",
        where="POST /v1/records/serialize, NDJSON to any format",
        given="a line that is not JSON, after several MiB of good lines",
        right="400 with the offset of the fault in the body",
        wrong="400 with the offset in the block that was read last",
        patch=Patch(
            "app/codecs/json/rows/row_texts.py",
            "offset = lines.offset + int(lines.starts[index]) + (error",
            "offset = int(lines.starts[index]) + (error",
        ),
        tests=(
            "tests/unit/codecs/json/test_json_rows.py::test_rows_of_a_large_array_are_read_some_at_a_time",
        ),
    ),
    Mutation(
        id="arrow-sparse-index-at-dimension",
        where="POST /v1/records/serialize, Arrow to TFRecord",
        given="a sparse feature of shape [4] with the index 4",
        right="422 index_out_of_bounds",
        wrong="200: readers of the file fail",
        patch=Patch(
            "app/codecs/arrow/columns.py",
            "(coordinates >= np.array(self.feature.shape))",
            "(coordinates > np.array(self.feature.shape))",
        ),
        tests=("tests/unit/codecs/arrow/test_arrow.py::test_array_that_does_not_fit_the_schema_is_refused",),
    ),
    Mutation(
        id="parquet-page-checksum",
        where="POST /v1/records/serialize, Parquet to any format",
        given="a file with page checksums, in which one bit of a page was flipped",
        right="400 invalid_parquet",
        wrong="200 with another value",
        patch=Patch(
            "app/codecs/arrow/parquet.py",
            "page_checksum_verification=True",
            "page_checksum_verification=False",
        ),
        tests=("tests/unit/codecs/arrow/test_parquet.py::test_a_flipped_bit_in_a_page_with_a_checksum",),
    ),
    Mutation(
        id="arrow-float-2-63-as-int64",
        where="POST /v1/records/serialize, Arrow to TFRecord",
        given="a column of float64 with 9223372036854775808.0, declared int64",
        right="422 out_of_range with the row",
        wrong="200, and the value is -9223372036854775808",
        patch=Patch("app/codecs/convert.py", "(wide < float(high + 1))", "(wide <= float(high))"),
        tests=("tests/unit/codecs/test_convert.py",),
    ),
    Mutation(
        id="arrow-last-full-batch",
        where="POST /v1/records/serialize, to Arrow with batch=2 and drop_remainder=true",
        given="four rows that arrive in two blocks of two",
        right="two batches of two rows",
        wrong="one batch: the last one is full, and is left out",
        patch=Patch(
            "app/codecs/columns.py",
            "while rows.num_rows - first >= missing:",
            "while rows.num_rows - first > missing:",
        ),
        tests=("tests/unit/codecs/test_columns.py::test_rows_stay_in_order_in_batches_of_one_size",),
    ),
    Mutation(
        id="npy-fortran-order-of-strings",
        where="POST /v1/tensors/serialize, NPY to any format",
        given="an array of strings of shape [2, 3] in Fortran order",
        right="the strings in the order of their indices",
        wrong="the strings in the order of the file",
        patch=Patch(
            "app/codecs/arrays/npy.py",
            "if header.fortran_order and num_axes(header.shape) > 1:",
            "if header.fortran_order and num_axes(header.shape) > 2:",
        ),
        tests=("tests/unit/codecs/arrays/test_array_tensors.py::test_npy_is_the_same_however_it_arrives",),
    ),
    Mutation(
        id="zip-duplicate-member",
        where="POST /v1/records/serialize, a ZIP archive to TFRecord",
        given="an archive with two files of the same name",
        right="422 duplicate_member",
        wrong="200 with two rows of one key",
        patch=Patch(
            "app/codecs/archives/zip.py",
            "return self._archive.getinfo(info.filename) is not info",
            "return False",
        ),
        tests=("tests/unit/codecs/archives/test_zip.py::test_malformed_zip_is_refused",),
    ),
    Mutation(
        id="gzip-body-cut-short",
        where="POST /v1/records/serialize, NDJSON in gzip to any format",
        given="a gzip body without its last bytes, cut after a whole line",
        right="400 truncated",
        wrong="200 with the rows up to the cut",
        patch=Patch(
            "app/codecs/compression/inflate.py",
            "and self._inflater.needs_input and not self._fill():\n",
            "and self._inflater.needs_input and not self._fill():\n"
            "                return b''\n"
            "            if not n:\n",
        ),
        tests=("tests/unit/codecs/messages/test_tfrecord.py::test_a_compressed_stream_must_be_whole",),
    ),
    Mutation(
        id="lossy-value-in-second-batch",
        where="POST /v1/records/serialize, to TFRecord with float64 values",
        given="a value that float32 does not hold, in a row after the first batch",
        right="422 lossy_encoding with the number of that row in the body",
        wrong="422 lossy_encoding with its number in the batch",
        patch=Patch(
            "app/codecs/messages/examples/float_lists.py", "return found + self.first_row", "return found"
        ),
        tests=(
            "tests/unit/codecs/messages/test_message_writing.py::test_every_kind_names_the_rows_that_are_rounded_or_refused",
        ),
    ),
    Mutation(
        id="nan-is-not-rounded",
        where="POST /v1/records/serialize, to TFRecord with lossy=error",
        given="float64 values of which one is NaN and the others are exact in float32",
        right="200: NaN is stored as it is",
        wrong="422: NaN would change",
        patch=Patch("app/codecs/messages/examples/float_lists.py", "changed &= ~np.isnan(values)", "pass"),
        tests=("tests/unit/codecs/messages/test_message_writing.py::test_which_values_a_float_list_takes",),
    ),
    Mutation(
        id="features-json-of-nullable-class-label",
        where="GET /v1/datasets/{dataset}/versions/{version}/files/features.json",
        given="a feature with class names that rows may lack",
        right="an optional Scalar: TFDS has no optional ClassLabel",
        wrong="a ClassLabel: TFDS fails at the first row without it",
        patch=Patch(
            "app/codecs/schemas/features_write.py",
            "return is_one and not feature.nullable and",
            "return is_one and",
        ),
        tests=("tests/unit/codecs/schemas/test_features_json.py",),
    ),
    Mutation(
        id="large-negative-integer-then-float",
        where="POST /v1/datasets/{dataset}/records?evolve=true",
        given="the inferred int64 -16777217, and afterwards a decimal for the same feature",
        right="409: float32 does not hold all integers that are stored",
        wrong="201: the version holds -16777216.0",
        patch=Patch(
            "app/codecs/records/large_integers.py",
            "(int(values.min()) >= -_ALL_EXACT and",
            "(",
        ),
        tests=(
            "tests/unit/services/datasets/append/test_widening.py::test_an_integer_that_float32_does_not_hold_stays_one",
        ),
    ),
)
