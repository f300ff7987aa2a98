"""Faults of datasets, statistics and search: app/services."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="append-retry-is-stored-once",
        where="POST /v1/datasets/{dataset}/records with Idempotency-Key",
        given="the same request twice",
        right="the rows are stored once, and the second response is that of the first",
        wrong="the rows are stored twice",
        patch=Patch(
            "app/services/datasets/append/attempt.py",
            "secrets.token_hex(16) if request.key is None else id_of_key(request.key)",
            "secrets.token_hex(16)",
        ),
        tests=(
            "tests/unit/services/datasets/append/test_appends.py::test_the_same_key_and_body_again_give_the_first_result",
        ),
    ),
    Mutation(
        id="append-key-with-other-rows",
        where="POST /v1/datasets/{dataset}/records with Idempotency-Key",
        given="a key that was used for other rows",
        right="422 idempotency_key_reused",
        wrong="201, and the rows are not stored",
        patch=Patch(
            "app/services/datasets/append/result.py", "if slot.digest != digest:", "if not slot.digest:"
        ),
        tests=("tests/unit/services/datasets/append/test_appends.py::test_a_key_is_good_for_one_body",),
    ),
    Mutation(
        id="grouped-appends-of-two-splits",
        where="POST /v1/datasets/{dataset}/records",
        given="small appends to train and to test at the same time",
        right="each row is in the split that it was sent to",
        wrong="those that share a group go to the split of the first",
        patch=Patch(
            "app/services/datasets/append/groups.py",
            "key = (destination.layout, destination.step, split)",
            'key = (destination.layout, destination.step, "")',
        ),
        tests=("tests/unit/services/datasets/append/test_groups.py::test_splits_have_groups_of_their_own",),
    ),
    Mutation(
        id="stored-block-checksum",
        where="POST /v1/datasets/{dataset}/versions",
        given="a stored block of an append in which a bit was flipped",
        right="500: the version is aborted, nothing wrong is published",
        wrong="the version holds the changed record",
        patch=Patch(
            "app/services/datasets/pieces/stream.py",
            "return len(data) == piece.size and sha256(data).hexdigest() == piece.sha256",
            "return len(data) == piece.size",
        ),
        tests=("tests/unit/services/datasets/pieces/test_stream.py",),
    ),
    Mutation(
        id="publication-without-excluded-append",
        where="POST /v1/datasets/{dataset}/versions?exclude=",
        given="two appends, of which one is excluded",
        right="the version has the rows of the other one",
        wrong="the version has all rows",
        patch=Patch(
            "app/services/datasets/publish/publisher.py",
            "commits = [commit for commit in commits if commit.append_id not in options.exclude]",
            "commits = list(commits)",
        ),
        tests=(
            "tests/unit/services/datasets/publish/test_publish_care.py::test_leaving_out_the_only_append_publishes_the_rest",
        ),
    ),
    Mutation(
        id="division-in-second-block",
        where="POST /v1/datasets/{dataset}/versions?fractions=",
        given="an append of several stored blocks, divided by the place of rows",
        right="each row is in the split that its place in the append decides",
        wrong="rows of later blocks are missing from their splits, or there twice",
        patch=Patch(
            "app/services/datasets/publish/dealing.py",
            "        row += stored.piece.num_records\n",
            "",
        ),
        tests=(
            "tests/unit/services/datasets/publish/test_dealing.py::test_rows_of_later_blocks_are_divided_by_their_place_in_the_append",
        ),
    ),
    Mutation(
        id="collection-leaves-deleted-version-an-hour",
        where="POST /v1/datasets/{dataset}/collect",
        given="a version that was deleted a moment ago",
        right="its files stay until the grace period is over: readers may be at them",
        wrong="its files are gone at once",
        patch=Patch(
            "app/services/datasets/collect/leftover_versions.py",
            'return "over" if deleted + _GRACE <= sweep.now else "deleted"',
            'return "over" if deleted <= sweep.now else "deleted"',
        ),
        tests=(
            "tests/unit/services/datasets/collect/test_collector.py::test_a_deleted_version_is_not_found_and_its_bytes_go_after_an_hour",
        ),
    ),
    Mutation(
        id="import-csv-quotes-across-blocks",
        where="POST /v1/datasets/{dataset}/imports, of a large CSV object",
        given="a quoted field that goes on in the next block, with line feeds in it",
        right="ranges end between rows",
        wrong="a range ends inside the field, and a row is torn",
        patch=Patch(
            "app/services/datasets/imports/cutting.py", "quotes += len(at_quotes)", "quotes = len(at_quotes)"
        ),
        tests=(
            "tests/unit/services/datasets/imports/test_cutting.py::test_ranges_hold_the_rows_of_the_whole",
        ),
    ),
    Mutation(
        id="validation-of-two-gzip-members",
        where="POST /v1/datasets/{dataset}/versions/{version}/validate",
        given="a compressed shard of two gzip members, which TensorFlow may read in part",
        right="valid is false, with several_members",
        wrong="valid is true",
        patch=Patch(
            "app/services/datasets/validate/shard_check.py",
            "elif inflated.num_members > 1:",
            "elif inflated.num_members > 2:",
        ),
        tests=(
            "tests/unit/services/datasets/validate/test_validator.py::test_gzip_of_two_members_is_reported",
        ),
    ),
    Mutation(
        id="search-of-text-at-the-end",
        where="GET /ui/datasets/{dataset}/{version}/rows, a search for part of a text",
        given="a value that ends with what is searched for",
        right="its row is found",
        wrong="its row is not found",
        patch=Patch(
            "app/services/convert/search.py",
            "if at + len(self.text) <= end:",
            "if at + len(self.text) < end:",
        ),
        tests=("tests/unit/services/convert/test_search.py::test_strings",),
    ),
    Mutation(
        id="statistics-of-zeros-as-the-least",
        where="GET /v1/datasets/{dataset}/versions/{version}/statistics",
        given="a feature with the values 0, 0 and 1",
        right="num_zeros is 2",
        wrong="num_zeros is 0: the least value is 0",
        patch=Patch("app/services/convert/statistics.py", "if low <= 0 <= high:", "if low < 0 < high:"),
        tests=("tests/unit/services/convert/test_statistics.py::test_floats_in_pieces",),
    ),
)
