"""Which tests show each requirement of docs/protocol.md: id → (file, test names)."""

from __future__ import annotations

CLIENT = "tests/server/test_client_on_the_wire.py"
DECISIONS = "tests/server/test_client_decisions.py"
WIRE = "tests/unit/sdk/test_wire.py"
IDENTITY = "tests/unit/sdk/test_identity.py"
CONTEXT = "tests/unit/sdk/test_context.py"
MIDDLEWARE = "tests/server/test_middleware.py"
HOSTS = "tests/server/test_middleware_hosts.py"
PLACEMENT = "tests/unit/server_ext/test_placement.py"
VIEW = "tests/unit/server_ext/test_vllm_view.py"
VLLM = "tests/vllm/test_sessions_at_home.py"

ROUND_TRIP = "test_what_is_encoded_is_decoded_and_never_over_1_kb"
ANY_BYTES = "test_decode_never_raises_and_answers_only_valid_markers"
HOSTILE = "test_hostile_headers_are_answered_as_if_they_were_not_there"
HANG_UP = "test_clients_that_hang_up_mid_stream_leave_no_load_behind"

REQUIREMENTS: dict[str, list[tuple[str, str]]] = {
    "id-shape": [(IDENTITY, "test_every_name_gives_a_valid_run_id_that_does_not_show_it")],
    "id-keyed": [
        (IDENTITY, "test_a_run_id_depends_on_the_name_and_the_key"),
        (CLIENT, "test_processes_that_make_the_install_key_at_once_derive_the_same_ids"),
        (CLIENT, "test_without_any_install_key_ids_stay_private_and_one_warning_says_so"),
    ],
    "id-derived": [
        (IDENTITY, "test_session_ids_are_equal_exactly_when_all_parts_are"),
        (CLIENT, "test_a_key_in_the_environment_gives_the_same_ids_on_every_machine"),
    ],
    "id-instance": [(CONTEXT, "test_parallel_instances_of_one_agent_are_different_sessions")],
    "id-context": [
        (CLIENT, "test_sync_keys_are_equal_over_openais_own_retries"),
        (CLIENT, "test_async_keys_are_equal_over_openais_own_retries"),
        (CLIENT, "test_the_keys_are_equal_over_a_tool_call_and_the_turn_advances"),
        (CLIENT, "test_gathered_sessions_keep_their_own_keys_over_every_turn"),
    ],
    "id-turn": [(CLIENT, "test_the_same_prompt_again_is_the_same_turn_tried_again")],
    "id-unmarked": [
        (CLIENT, "test_a_call_outside_every_run_goes_out_unmarked_and_works"),
        (CONTEXT, "test_what_keeps_a_copy_of_a_context_is_in_no_session_after_the_scope"),
    ],
    "wire-size": [(WIRE, ROUND_TRIP)],
    "wire-roundtrip": [(WIRE, ROUND_TRIP)],
    "wire-total": [
        (WIRE, ANY_BYTES),
        (MIDDLEWARE, "test_every_dropped_marker_is_counted_by_kind"),
    ],
    "wire-duplicate": [(WIRE, "test_of_two_equal_names_the_first_counts_and_turn_lines_join")],
    "wire-caller-wins": [
        (CLIENT, "test_a_callers_own_session_header_or_omit_wins_over_all_of_ours"),
        (CLIENT, "test_a_clients_own_default_header_wins_over_ours"),
        (DECISIONS, "test_an_omit_wins_wherever_it_is_said"),
    ],
    "wire-redirect": [
        (CLIENT, "test_no_marker_follows_a_redirect_to_another_origin"),
        (CLIENT, "test_no_marker_of_an_async_client_follows_a_redirect_to_another_origin"),
    ],
    "wire-no-target": [(CLIENT, "test_a_client_never_names_a_rank_or_a_worker")],
    "place-home": [
        (VLLM, "test_every_turn_finds_its_last_prompt_cached_at_one_home_and_both_ranks_are_used"),
        (VLLM, "test_every_route_obeys_the_token_over_new_connections"),
    ],
    "place-first": [
        (PLACEMENT, "test_a_first_turn_goes_to_the_least_loaded_rank_with_fewest_recent_sessions"),
        (VLLM, "test_first_turns_sent_at_once_use_both_ranks"),
        (VIEW, "test_the_least_load_is_the_rank_that_stock_vllm_would_choose"),
    ],
    "place-hash": [
        (PLACEMENT, "test_a_later_turn_without_a_token_goes_by_hash_whatever_the_load"),
        (MIDDLEWARE, "test_a_session_whose_client_echoes_nothing_stays_on_one_rank_by_hash"),
    ],
    "place-stale": [
        (PLACEMENT, "test_only_a_well_formed_token_of_this_server_names_a_home"),
        (VLLM, "test_a_token_that_names_no_rank_of_this_server_is_ignored"),
    ],
    "place-live": [
        (VIEW, "test_ranks_and_loads_follow_an_engine_that_grows"),
        (VLLM, "test_the_status_route_tells_the_ranks_of_the_running_engine"),
    ],
    "place-no-map": [(MIDDLEWARE, "test_ten_thousand_sessions_leave_nothing_in_the_middleware")],
    "place-unmarked": [
        (MIDDLEWARE, "test_a_request_without_a_session_is_answered_as_by_the_stock_server"),
        (VLLM, HOSTILE),
    ],
    "fail-open": [
        (CLIENT, "test_an_error_in_any_step_of_ours_leaves_the_request_as_it_was"),
        (HOSTS, "test_an_engine_that_cannot_be_asked_costs_the_placement_and_not_the_request"),
        (HOSTS, "test_a_log_filter_that_raises_costs_nobody_a_request"),
    ],
    "fail-rank-stripped": [
        (MIDDLEWARE, HOSTILE),
        (MIDDLEWARE, "test_a_trusted_rank_decides_and_an_unchecked_one_is_stripped_all_the_same"),
    ],
    "fail-passthrough": [
        (HOSTS, "test_lifespan_websockets_and_other_paths_reach_the_app_as_they_came"),
        (MIDDLEWARE, "test_a_streamed_answer_arrives_piece_by_piece"),
    ],
    "fail-load-returns": [
        (MIDDLEWARE, "test_a_client_that_disconnects_mid_stream_leaves_no_load_behind"),
        (VLLM, HANG_UP),
    ],
    "fail-private": [(CLIENT, "test_no_id_is_logged_or_shown_in_an_error")],
}
