"""Faults of the Python client and of the command line: app/client and app/cli."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="feed-state-of-steps-done",
        where="Feed.state_dict(steps_done=3)",
        given="a training that has done three steps of the five that were read ahead",
        right="the state goes on with step 3",
        wrong="the state goes on with step 5: two steps are never trained on",
        patch=Patch(
            "app/client/feed.py",
            "done = self._steps_done if steps_done is None else steps_done",
            "done = self._steps_done",
        ),
        tests=(
            "tests/contract/test_http_feed.py::test_a_state_says_what_was_trained_not_what_was_read_ahead",
        ),
    ),
    Mutation(
        id="client-waits-for-retry-after",
        where="any call of the Python client",
        given="503 with Retry-After: 7, then 200",
        right="the second try comes after seven seconds",
        wrong="the second try comes at once",
        patch=Patch(
            "app/client/connection.py",
            "pause_s = max(error.wait_s, wait_s * random.uniform(0.5, 1.0))",
            "pause_s = wait_s * random.uniform(0.5, 1.0)",
        ),
        tests=("tests/unit/client/test_connection.py",),
    ),
    Mutation(
        id="exit-status-of-a-conflict",
        where="shardsmith publish DATASET",
        given="a dataset without rows to publish",
        right="exit status 5",
        wrong="exit status 1",
        patch=Patch("app/cli/failures.py", "    errors.Conflict: 5,\n", ""),
        tests=("tests/contract/test_cli_datasets.py::test_rows_go_in_and_come_out",),
    ),
    Mutation(
        id="put-of-the-same-file-to-another-split",
        where="shardsmith put DATASET FILE, then again with another --split",
        given="the same file to the splits train and test",
        right="the rows are stored in both splits",
        wrong="the second command is taken for a repetition of the first",
        patch=Patch(
            "app/cli/storing.py",
            "repr([dataset, split, read_as, sorted(options.items())])",
            "repr([dataset, read_as, sorted(options.items())])",
        ),
        tests=("tests/contract/test_cli_datasets.py::test_a_file_is_stored_once_however_often_it_is_put",),
    ),
    Mutation(
        id="exit-status-of-a-stopped-import",
        where="shardsmith import SOURCE --dataset NAME",
        given="an object with a row that cannot be read",
        right="exit status 3",
        wrong="exit status 0: scripts go on without the rows",
        patch=Patch(
            "app/cli/importing.py", 'if status.state == "stopped":', 'if status.state == "cancelled":'
        ),
        tests=("tests/unit/cli/test_import.py::test_a_range_that_cannot_be_read_is_named",),
    ),
)
