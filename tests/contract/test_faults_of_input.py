"""Rows 1-34 and 38-57 of the catalogue of faults: what is sent, by whom and how, and the tests of each.

Rows 35-37 stand in test_faults_of_stores.py. Of 1-34, the bodies of test_faults.py go to every route; what
is named here tells more of each. 34: there is no form for images, and no decoder of them.
"""

from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
CODECS: Final = "unit/codecs"
ARRAYS: Final = f"{CODECS}/arrays/test_array_tensors.py"
FRAMING: Final = f"{CODECS}/messages/test_tfrecord.py"
INFLATE: Final = "unit/api/execution/test_decoded_bodies.py"
ENCODED: Final = "contract/test_http_content_encoding.py"
PROTO: Final = f"{CODECS}/messages/test_tensor_messages.py"
JSON: Final = f"{CODECS}/json/test_json_text.py"
CONVERT: Final = f"{CODECS}/json/test_json_rows.py"
ARROW: Final = f"{CODECS}/arrow/test_arrow.py"
FAULTS: Final = "contract/test_faults.py"
CONNECTIONS: Final = "contract/test_http_connections.py"
AUTH: Final = "contract/test_auth.py"
STRICT: Final = "unit/api/http1/test_strict_parsing.py"
DEADLINES: Final = "unit/api/http1/test_deadlines.py"
ANSWERS: Final = "unit/api/http1/test_answers.py"
ADMISSION: Final = "unit/api/test_admission.py"
LANES: Final = "unit/api/execution/test_lanes.py"
MEMORY: Final = "unit/runtime/test_memory.py"
LIMITS: Final = "contract/test_http_limits_of_connections.py"
OVERLOAD: Final = "e2e/test_overload.py"
SERVE: Final = "e2e/test_serve.py"

ROWS: Final = {
    1: [f"{ARRAYS}::test_an_npy_pickle_is_never_loaded", f"{ARRAYS}::test_npy_that_is_refused"],
    2: [f"{ARRAYS}::test_npy_that_is_refused", f"{PROTO}::test_messages_that_are_refused"],
    3: [f"{ARRAYS}::test_npy_that_is_refused"],
    4: [f"{ARRAYS}::test_npy_that_is_refused"],
    5: [f"{ARRAYS}::test_npy_shapes"],
    6: [f"{ARRAYS}::test_npy_strings_lose_the_nuls_at_their_ends", f"{ARRAYS}::test_npy_that_is_refused"],
    7: [f"{ARRAYS}::test_npy_that_is_refused"],
    8: [f"{ARRAYS}::test_npy_that_is_refused"],
    9: [
        f"{ARRAYS}::test_npy_faults_in_the_content_have_an_offset",
        f"{ARRAYS}::test_an_npy_header_cut_anywhere",
    ],
    10: [
        f"{ARRAYS}::test_npy_has_every_dtype_in_every_byte_order",
        f"{ARRAYS}::test_npy_that_is_refused",
        f"{FAULTS}::test_big_endian_and_fortran_order_are_converted_exactly",
    ],
    11: [f"{ARRAYS}::test_npz_bombs_are_stopped", f"{ARRAYS}::test_names_of_an_npz_have_a_limit"],
    12: [f"{ARRAYS}::test_npz_that_is_refused"],
    13: [f"{ARRAYS}::test_npz_that_is_refused", f"{ARRAYS}::test_an_npz_that_lies_in_zip64_fields"],
    14: [
        f"{ENCODED}::test_fault_14_15_a_bomb_is_refused_in_bounded_memory_and_stores_nothing",
        f"{INFLATE}::test_fault_14_15_a_bomb_is_refused_while_it_is_inflated",
        f"{FRAMING}::test_a_bomb_is_refused_while_it_inflates",
    ],
    15: [
        f"{ENCODED}::test_fault_15_a_window_that_is_too_large_is_refused",
        f"{INFLATE}::test_fault_15_a_window_beyond_that_of_the_content_coding_is_refused",
    ],
    16: [
        f"{ENCODED}::test_fault_16_stacked_and_unknown_encodings_are_refused_with_what_there_is",
        f"{ENCODED}::test_fault_16_codings_on_two_lines_are_stacked_too",
    ],
    17: [
        f"{ENCODED}::test_fault_17_a_body_cut_short_anywhere_stores_nothing",
        f"{INFLATE}::test_every_bit_of_the_checksum_counts",
        f"{INFLATE}::test_trailing_bytes_are_refused",
        f"{FRAMING}::test_a_wrong_trailer_is_found",
    ],
    18: [
        f"{PROTO}::test_values_are_charged_before_they_are_made",
    ],
    19: [f"{PROTO}::test_messages_that_are_refused"],
    20: [
        f"{PROTO}::test_values_that_the_dtype_does_not_hold",
        f"{PROTO}::test_messages_that_are_refused",
    ],
    21: [f"{PROTO}::test_messages_that_are_refused"],
    22: [
        f"{PROTO}::test_messages_that_are_refused",
        f"{CODECS}/messages/test_messages_wire.py::test_malformed_messages_are_named_with_row_and_offset",
    ],
    23: [
        f"{FRAMING}::test_a_length_with_a_valid_checksum_is_not_believed",
        f"{FRAMING}::test_nothing_is_allocated_ahead_of_what_arrives",
    ],
    24: [f"{FRAMING}::test_every_flipped_bit_is_found_with_its_record_and_offset"],
    25: [f"{FRAMING}::test_a_cut_inside_a_record_is_refused"],
    26: [
        f"{CODECS}/json/test_json_tensors_in.py::test_nonfinite_values_as_asked_for",
        f"{CONVERT}::test_a_body_is_read_or_refused",
    ],
    27: [
        f"{CONVERT}::test_a_body_is_read_or_refused",
    ],
    28: [
        f"{JSON}::test_malformed_text_is_refused_where_it_goes_wrong",
        f"{JSON}::test_fault_after_a_long_string_takes_little_memory",
    ],
    29: [
        f"{JSON}::test_a_hundred_thousand_levels_are_refused_in_any_thread",
        f"{JSON}::test_integers_of_thousands_of_digits_are_refused_with_their_place",
    ],
    30: [
        f"{JSON}::test_malformed_text_is_refused_where_it_goes_wrong",
        f"{JSON}::test_pairs_of_surrogates_escaped_backslashes_and_nuls_are_text",
    ],
    31: [
        f"{CODECS}/json/test_json_rows.py::test_a_body_is_read_or_refused",
    ],
    32: [
        f"{ARROW}::test_bytes_that_are_not_read",
        f"{ARROW}::test_view_of_a_null_is_not_read",
    ],
    33: [
        f"{ARROW}::test_compressed_buffers_are_charged_before_they_are_inflated",
        f"{ARROW}::test_streams_and_files",
        f"{ARROW}::test_row_count_beyond_the_amplification_limit_is_refused",
        f"{CODECS}/arrow/test_parquet.py::test_parquet_beyond_the_budget_is_refused",
    ],
    34: [
        f"{FAULTS}::test_an_image_is_a_tensor_and_no_rows",
        "repository/test_isolation.py::test_a_service_that_has_converted_has_loaded_none_of_them",
    ],
    38: [  # Content-Disposition
        f"{AUTH}::test_the_content_disposition_of_a_download_is_a_plain_name",
        "unit/api/downloads/test_files.py::test_a_name_that_would_break_the_header_never_gets_there",
    ],
    39: [  # lines of the log
        "unit/test_logs.py::test_json_lines_hold_everything_and_no_line_end",
        "unit/test_logs.py::test_text_lines_show_control_characters",
        "contract/test_audit.py::test_names_forge_no_lines",
    ],
    40: ["unit/api/auth/test_token_file.py::test_an_entry_is_found_by_the_digest_of_its_token"],
    41: [  # scopes and tenants
        f"{AUTH}::test_each_route_takes_the_scope_of_the_table_and_no_other",
        f"{AUTH}::test_the_dataset_of_another_tenant_is_not_there",
        "unit/api/auth/test_routes.py::test_every_route_of_the_application_is_in_the_table_and_no_other",
    ],
    42: [  # hosts and paths
        f"{AUTH}::test_no_spelling_of_a_path_leads_around_the_check",
        "unit/api/auth/test_routes.py::test_the_table_and_the_router_mean_the_same_path",
        "unit/api/test_base_url.py::test_malformed_host_never_reaches_generated_lines",
    ],
    43: ["e2e/test_auth.py::test_no_secret_shows_in_an_answer_or_a_log"],
    44: [
        f"{STRICT}::test_too_large_a_head_is_refused",
        f"{LIMITS}::test_refused_request_is_a_problem_and_closes_the_connection",
    ],
    45: [
        f"{DEADLINES}::test_a_connection_on_which_nothing_begins_is_closed",
        f"{DEADLINES}::test_a_head_that_does_not_end_is_408",
        f"{DEADLINES}::test_an_idle_connection_is_closed_without_a_word",
    ],
    46: [f"{DEADLINES}::test_a_body_that_trickles_is_408"],
    47: [
        f"{DEADLINES}::test_a_client_that_takes_nothing_is_cut",
        f"{DEADLINES}::test_a_client_that_takes_an_answer_too_slowly_is_cut",
        f"{LIMITS}::test_who_reads_nothing_of_a_large_answer_is_cut_and_holds_nothing",
    ],
    48: [f"{STRICT}::test_ambiguous_request_is_refused"],
    49: [
        f"{CONNECTIONS}::test_an_upload_longer_than_allowed_is_refused_before_it_is_read",
        f"{ANSWERS}::test_who_is_answered_without_being_asked_for_the_body_is_not_listened_to",
        f"{LIMITS}::test_a_chunked_body_past_the_limit_is_413_while_it_is_sent",
    ],
    50: [
        f"{CONNECTIONS}::test_a_client_that_leaves_anywhere_in_its_body_leaves_nothing",
        f"{LIMITS}::test_who_leaves_at_a_tenth_of_its_body_leaves_nothing",
    ],
    51: [
        f"{OVERLOAD}::test_ten_times_the_load_is_answered_or_refused_and_probes_are_green",
        f"{ADMISSION}::test_request_over_the_limit_is_503_with_retry_after",
        f"{ADMISSION}::test_lasting_delay_lowers_admission_until_it_ends",
        f"{LANES}::test_who_finds_the_queue_full_is_refused_at_once",
    ],
    52: [
        f"{OVERLOAD}::test_many_large_bodies_share_the_memory_there_is",
        f"{MEMORY}::test_charges_to_a_budget_come_out_of_the_pool_and_go_back",
        f"{MEMORY}::test_where_all_wait_the_youngest_is_refused_and_the_others_end",
    ],
    53: [
        "unit/runtime/test_turns.py::test_no_more_compute_than_there_are_turns",
        f"{ADMISSION}::test_a_share_is_refused_while_the_loop_is_late",
    ],
    54: [
        f"{OVERLOAD}::test_ten_times_the_load_is_answered_or_refused_and_probes_are_green",
        f"{ADMISSION}::test_probes_pass_under_overload",
        "unit/api/http1/test_connections.py::test_probes_get_through_where_all_others_are_at_work",
    ],
    55: [
        "contract/test_http_tensor_streams.py::test_a_failure_after_the_first_byte_is_visible",
        f"{CONNECTIONS}::test_a_failure_after_the_first_byte_leaves_the_last_chunk_out",
    ],
    56: [
        f"{SERVE}::test_an_unfinished_upload_does_not_keep_it_from_ending",
        f"{SERVE}::test_draining_service_is_unready_and_still_accepts",
        f"{SERVE}::test_no_upload_survives_the_end_of_the_process",
        f"{ANSWERS}::test_response_during_shutdown_closes_the_connection",
    ],
    57: ["e2e/test_rolling_restart.py::test_no_acknowledged_append_is_lost_by_a_rolling_restart"],
}


def test_every_row_of_the_catalogue_is_here() -> None:
    of_stores = {35, 36, 37}
    assert set(ROWS) | of_stores == set(range(1, 58))


@pytest.mark.parametrize("test", sorted({test for tests in ROWS.values() for test in tests}))
def test_named_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (TESTS / file).read_text()
