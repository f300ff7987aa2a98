"""Where the faults of stores, processes and clients are tested, rows 35-37 and 58-76 of the catalogue.

Rows 1-34, bodies that must not be believed, are in test_faults.py. Beside the tests named here, the
simulation (tests/simulation) and the campaign (tests/campaign) draw most of these faults by chance, and judge
by what is there in the end. Row 71, a loss of power under the local store, is documented in docs/stores.md:
nothing is synced.
"""

from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
APPEND: Final = "unit/services/datasets/append/test_appends.py"
COLLECT: Final = "unit/services/datasets/collect/test_collector.py"
CREATE: Final = "unit/storage/test_create_once.py"
EXECUTE: Final = "unit/services/datasets/publish/test_executor.py"
GROUP: Final = "unit/services/datasets/append/test_groups.py"
OBSTORE: Final = "unit/storage/test_obstore_store.py"
PROCESSES: Final = "campaign/test_processes.py"
PUBLISH: Final = "unit/services/datasets/publish/test_publisher.py"
REMOTE: Final = "unit/storage/test_remote.py"
BAD_STORE: Final = "campaign/test_bad_store.py"

ROWS: Final = {
    35: [  # names that lead elsewhere
        "unit/domain/test_names.py::test_no_name_of_a_dataset_or_split",
        "unit/domain/test_names.py::test_no_name_of_a_file",
        "unit/domain/test_names.py::test_whatever_passes_is_a_plain_segment",
        "contract/test_http_datasets.py::test_bad_dataset_names_are_refused",
        "contract/test_stores.py::test_key_that_is_not_a_path_is_refused",
    ],
    36: [  # links in the local root
        "unit/storage/test_local_root.py::test_no_operation_follows_a_link_out",
        "unit/storage/test_local_root.py::test_no_copy_follows_a_link_out",
        "unit/storage/test_local_root.py::test_no_sweep_follows_a_link_out",
        "unit/storage/test_local_root.py::test_no_list_shows_what_lies_outside",
    ],
    37: ["contract/test_http_server_side_requests.py::test_no_url_from_a_client_is_fetched"],
    58: [  # kill -9
        f"{EXECUTE}::test_a_process_killed_at_any_write_loses_and_repeats_nothing",
        f"{EXECUTE}::test_several_processes_killed_one_after_the_other",
        f"{EXECUTE}::test_shards_of_every_form_survive_a_kill_at_any_of_their_writes",
        f"{COLLECT}::test_a_collector_killed_at_any_write_is_finished_by_the_next",
        "campaign/test_campaign.py::test_kills_lose_and_repeat_nothing_on_a_local_store",
        "campaign/test_campaign.py::test_kills_and_faults_lose_and_repeat_nothing_on_s3",
    ],
    59: [  # an error after apply
        f"{CREATE}::test_our_own_object_is_recognised_after_the_answer_was_lost",
        f"{CREATE}::test_a_refusal_after_a_lost_answer_is_not_definite",
        f"{REMOTE}::test_a_refusal_takes_back_nothing_that_an_error_before_may_have_stored",
        f"{APPEND}::test_a_lost_answer_to_the_slot_is_resolved",
        f"{APPEND}::test_an_unknown_outcome_keeps_the_parts_and_the_key_finds_out",
        f"{GROUP}::test_a_lost_answer_is_resolved_for_all",
        f"{GROUP}::test_every_member_hears_of_an_unknown_outcome",
        f"{PUBLISH}::test_a_lost_answer_to_plan_and_manifest_is_resolved",
        f"{COLLECT}::test_an_unknown_outcome_leaves_everything",
    ],
    60: [  # 409 with nothing stored
        f"{CREATE}::test_conflict_with_nothing_stored_is_retried",
        f"{APPEND}::test_conflict_with_nothing_stored_is_retried",
    ],
    61: [  # two replicas, one name
        "contract/test_stores.py::test_of_racing_creators_one_wins",
        f"{APPEND}::test_of_two_first_appends_with_different_schemas_one_is_refused",
        f"{PUBLISH}::test_the_loser_of_a_race_removes_its_files_and_publishes_next",
        f"{PROCESSES}::test_replicas_that_race_for_a_key_store_its_rows_once",
        f"{PROCESSES}::test_publishers_that_race_make_one_version",
    ],
    62: [  # a writer that was paused
        f"{PROCESSES}::test_a_writer_that_wakes_up_after_its_row_was_stored_by_another_hears_the_same",
        f"{PROCESSES}::test_a_planner_that_wakes_up_after_another_has_published_changes_nothing",
        f"{PROCESSES}::test_an_executor_that_wakes_up_after_another_has_finished_its_version_agrees",
        f"{EXECUTE}::test_an_executor_that_wakes_up_late_changes_nothing",
        f"{COLLECT}::test_attempt_after_the_fence_stores_nothing",
    ],
    63: [  # idempotency keys
        f"{APPEND}::test_the_same_key_and_body_again_give_the_first_result",
        f"{APPEND}::test_a_key_is_good_for_one_body",
        f"{APPEND}::test_a_key_that_this_replica_is_at_is_refused_until_it_is_done",
        f"{APPEND}::test_after_a_restart_a_key_finds_out_what_came_of_it",
        f"{PROCESSES}::test_a_key_means_the_same_after_its_replica_was_killed_and_started_again",
        f"{PUBLISH}::test_the_same_publish_key_gives_the_same_version",
        f"{PUBLISH}::test_a_publish_key_is_good_for_one_request",
        "unit/services/datasets/append/test_request.py::"
        "test_a_repetition_gets_its_answer_also_where_its_schema_has_been_widened_since",
    ],
    64: [  # SlowDown
        f"{REMOTE}::test_a_store_that_asks_to_slow_down_is_asked_a_few_times_only",
        f"{REMOTE}::test_a_storm_that_passes_is_waited_out",
        f"{CREATE}::test_the_waits_grow_and_end_at_the_deadline",
    ],
    65: [  # a store that hangs
        f"{REMOTE}::test_no_request_outlasts_half_of_what_proxies_wait",
        f"{REMOTE}::test_every_operation_on_a_store_that_hangs_ends",
        f"{BAD_STORE}::test_every_request_is_answered_in_time_while_the_store_hangs",
        f"{GROUP}::test_a_group_that_no_thread_took_up_in_time_is_refused",
        "unit/api/execution/test_runner.py::test_a_request_that_waited_too_long_is_refused_and_does_nothing",
        "unit/services/datasets/test_threads.py::test_every_way_through_the_store_does_with_one_thread",
    ],
    66: [  # wrong bytes, parts of them, errors that say 200
        f"{BAD_STORE}::test_wrong_bytes_are_neither_read_nor_published",
        f"{REMOTE}::test_half_an_answer_is_none",
        f"{CREATE}::test_our_own_object_is_not_taken_for_anothers_where_it_is_read_wrongly",
        f"{REMOTE}::test_an_upload_whose_success_is_an_error_has_failed",
        "unit/services/datasets/objects/test_log.py::"
        "test_a_named_file_is_read_again_before_the_bytes_at_rest_are_blamed",
    ],
    67: [  # what a manifest names
        f"{EXECUTE}::test_a_note_of_a_shard_that_is_not_there_is_not_believed",
        f"{EXECUTE}::test_a_note_of_other_bytes_aborts",
        f"{PUBLISH}::test_a_shard_that_is_not_as_noted_is_written_again",
        f"{PUBLISH}::test_executors_that_disagree_abort",
    ],
    68: [  # an upload that fails in the middle
        f"{OBSTORE}::test_an_upload_whose_source_fails_is_aborted",
        f"{OBSTORE}::test_an_upload_of_which_a_part_fails_is_aborted",
        f"{BAD_STORE}::test_a_multipart_upload_that_fails_leaves_a_version_for_the_next_publish",
        "contract/test_stores.py::test_sweep_removes_unfinished_uploads_and_nothing_else",
    ],
    69: [  # collection and a commit
        f"{COLLECT}::test_a_commit_that_lands_just_before_the_fence_keeps_its_parts",
        f"{COLLECT}::test_commit_after_the_fence_is_never_published",
        f"{COLLECT}::test_a_young_attempt_keeps_the_slot_free_for_itself",
        f"{COLLECT}::test_an_undecided_plan_keeps_everything",
        "unit/services/datasets/publish/test_publish_care.py::"
        "test_slot_collected_after_its_listing_is_ignored",
    ],
    70: [  # disks that are full or fail
        "unit/storage/test_full_disk.py::test_a_full_disk_is_said_to_be_full",
        "unit/storage/test_full_disk.py::test_store_recovers_when_space_is_freed",
        "unit/runtime/test_spool.py::test_a_disk_that_fails_is_an_error_of_the_spool",
        f"{APPEND}::test_a_full_store_leaves_nothing",
        f"{PROCESSES}::test_a_full_disk_is_said_so_and_got_over",
    ],
    72: [  # clocks
        f"{APPEND}::test_order_survives_a_clock_that_goes_back",
        f"{PUBLISH}::test_a_plan_that_stood_still_for_a_minute_is_taken_over",
        f"{CREATE}::test_store_time_is_the_stores_and_leaves_nothing",
    ],
    73: [  # credentials that expire
        f"{REMOTE}::test_credentials_that_expire_in_mid_upload_end_it",
        f"{REMOTE}::test_no_operation_succeeds_with_expired_credentials",
        f"{REMOTE}::test_create_with_expired_credentials_has_a_definite_outcome",
    ],
    74: [  # a store without conditional puts
        "unit/storage/test_probe.py::test_an_unsafe_store_is_refused",
        "contract/test_store_configuration.py::test_rclone_is_refused",
    ],
    75: [  # the layout of gzip
        "differential/test_gzip_layout.py::test_tensorflow_reads_every_record_of_every_layout",
        "differential/test_gzip_layout.py::"
        "test_two_members_lose_records_without_an_error_so_the_sweep_can_fail",
    ],
    76: [  # readers agree
        "differential/test_shards.py::test_all_readers_agree",
        "differential/test_tfds.py::test_shards_splits_and_versions",
    ],
}


def test_every_row_of_the_catalogue_is_here() -> None:
    documented = {71}
    assert set(ROWS) | documented == {35, 36, 37, *range(58, 77)}


@pytest.mark.parametrize("test", sorted({test for tests in ROWS.values() for test in tests}))
def test_named_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (TESTS / file).read_text()
