"""Which tests show each requirement of docs/protocol.md: id → (file, test names)."""

from __future__ import annotations

CLIENT = "tests/server/test_client_on_the_wire.py"
DECISIONS = "tests/server/test_client_decisions.py"
WIRE = "tests/unit/sdk/test_wire.py"
IDENTITY = "tests/unit/sdk/test_identity.py"
CONTEXT = "tests/unit/sdk/test_context.py"
MOVES = "tests/server/test_middleware_moves.py"
MIDDLEWARE = "tests/server/test_middleware.py"
HOSTS = "tests/server/test_middleware_hosts.py"
PLACEMENT = "tests/unit/server_ext/test_placement.py"
VIEW = "tests/unit/server_ext/test_vllm_view.py"
VLLM = "tests/vllm/test_sessions_at_home.py"
MODES_VLLM = "tests/vllm/test_modes.py"

CARRIER = "tests/unit/sdk/test_carrier.py"
PROCESSES = "tests/server/test_processes.py"
FORKS = "tests/server/test_forks.py"
TURN = "tests/unit/sdk/test_turn.py"
TURNS = "tests/server/test_turns_on_the_wire.py"
CHOOSE = "tests/unit/sdk/dialects/test_choose.py"
REFUSALS = "tests/unit/sdk/dialects/test_refusals.py"
CARRIERS = "tests/unit/server_ext/test_carriers.py"
HOSTILE_CARRIERS = "tests/unit/server_ext/test_carriers_hostile.py"
CARRIED = "tests/server/test_carriers.py"
BODIES = "tests/server/test_carriers_body.py"
NEWS_READ = "tests/unit/server_ext/test_news.py"
NEWS = "tests/server/test_carriers_news.py"
CARRIERS_VLLM = "tests/vllm/test_carriers_on_vllm.py"
EACH_PROGRAM = "test_what_each_program_says_of_itself_is_understood"
STAYS_BY_HASH = "test_a_session_that_echoes_nothing_stays_on_one_rank"

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
    "id-turn": [
        (CLIENT, "test_the_same_prompt_again_is_the_same_turn_tried_again"),
        ("tests/unit/sdk/test_prompt.py", "test_model_and_sampling_take_no_part"),
        ("tests/unit/sdk/test_prompt.py", "test_what_the_server_holds_tells_prompts_apart"),
    ],
    "id-carried": [
        (CARRIER, "test_a_session_goes_on_elsewhere_with_its_ids_turns_and_tokens"),
        (CARRIER, "test_no_carrier_makes_extract_raise"),
        (PROCESSES, "test_the_session_goes_on_elsewhere_at_its_turn_and_its_home"),
    ],
    "id-fork": [
        (FORKS, "test_a_forked_child_is_not_in_the_scope_of_the_moment_of_the_fork"),
        (FORKS, "test_a_forked_pools_workers_never_show_the_run_that_they_were_forked_in"),
    ],
    "id-unmarked": [
        (CLIENT, "test_a_call_outside_every_run_goes_out_unmarked_and_works"),
        (CONTEXT, "test_what_keeps_a_copy_of_a_context_is_in_no_session_after_the_scope"),
    ],
    "wire-size": [(WIRE, ROUND_TRIP)],
    "turn-phase": [
        (TURN, "test_the_phase_is_read_from_the_messages_or_items"),
        (TURNS, "test_what_a_program_expects_travels_with_the_turn"),
    ],
    "turn-tokens": [
        (TURN, "test_what_is_appended_is_what_the_answers_output_leaves_of_the_growth"),
        (TURNS, "test_append_and_prefix_come_from_the_last_answers_usage"),
        (TURNS, "test_after_a_compaction_keep_says_how_much_is_unchanged"),
    ],
    "turn-wait": [
        (TURNS, "test_an_agents_own_waits_are_expected_again"),
        (TURNS, "test_what_a_program_expects_travels_with_the_turn"),
    ],
    "turn-attempt": [(TURNS, "test_all_attempts_of_a_turn_say_the_same_of_it")],
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
    "wire-token": [
        (DECISIONS, "test_a_token_is_not_sent_where_a_subclass_routes_a_call_to"),
        (CLIENT, "test_no_marker_follows_a_redirect_to_another_origin"),
    ],
    "wire-public": [
        (CHOOSE, "test_a_public_api_is_sent_what_its_documentation_asks_for"),
        (CHOOSE, "test_no_host_of_the_table_is_sent_a_header_of_protocol_1"),
    ],
    "wire-refused": [
        (TURNS, "test_a_body_field_that_a_server_refuses_costs_no_call_and_is_sent_once"),
        (REFUSALS, "test_a_refusal_of_our_field_is_understood"),
        (REFUSALS, "test_an_error_about_something_else_refuses_nothing"),
    ],
    "wire-no-target": [(CLIENT, "test_a_client_never_names_a_rank_or_a_worker")],
    "place-home": [
        (VLLM, "test_every_turn_finds_its_last_prompt_cached_at_one_home_and_both_ranks_are_used"),
        (VLLM, "test_every_route_obeys_the_token_over_new_connections"),
    ],
    "place-moved": [
        (MOVES, "test_a_session_that_was_evicted_at_home_is_placed_anew_and_stays_there"),
        (MOVES, "test_a_session_is_not_moved_while_its_home_holds_it"),
        (PLACEMENT, "test_a_warm_session_leaves_when_the_wait_costs_more_than_its_prompt"),
        (PLACEMENT, "test_a_session_moves_at_most_once_in_a_minute"),
    ],
    "place-closed": [
        (PLACEMENT, "test_nothing_goes_to_a_closed_rank_whatever_the_request_says"),
        (PLACEMENT, "test_a_session_whose_rank_closes_moves_once_and_does_not_go_back_by_itself"),
    ],
    "place-cold": [
        (PLACEMENT, "test_a_token_is_cold_exactly_when_its_ranks_cache_was_lost_since"),
        (
            MODES_VLLM,
            "test_after_the_caches_were_emptied_every_process_gives_tokens_of_a_later_epoch",
        ),
    ],
    "place-first": [
        (PLACEMENT, "test_a_first_turn_goes_to_the_least_loaded_rank_of_those_that_hold_nothing"),
        (PLACEMENT, "test_a_first_turn_avoids_the_rank_that_holds_and_has_computed_more"),
        (VLLM, "test_first_turns_sent_at_once_use_both_ranks"),
        (VIEW, "test_the_least_load_is_the_rank_that_stock_vllm_would_choose"),
    ],
    "place-auxiliary": [
        (MOVES, "test_an_auxiliary_call_goes_where_there_is_room_and_leaves_no_home"),
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
    "place-no-map": [(MIDDLEWARE, "test_ten_thousand_sessions_leave_no_more_than_a_thousand")],
    "place-unmarked": [
        (MIDDLEWARE, "test_a_request_without_a_session_is_answered_as_by_the_stock_server"),
        (VLLM, HOSTILE),
    ],
    "carrier-order": [
        (CARRIERS, "test_the_first_carrier_that_gives_a_session_wins_whole"),
        (CARRIERS, "test_the_bare_id_beside_our_words_for_the_same_session_does_not_hide_them"),
    ],
    "carrier-alias": [
        (CARRIERS, EACH_PROGRAM),
        (CARRIERS, "test_each_alias_alone_gives_a_session"),
        (CARRIERS, "test_what_names_no_linear_history_is_no_session"),
    ],
    "carrier-id": [
        (HOSTILE_CARRIERS, "test_a_foreign_id_is_kept_or_derived_or_refused_and_never_cut"),
        (CARRIED, "test_an_id_of_any_shape_holds_its_session_together"),
    ],
    "carrier-xargs": [(CARRIERS, EACH_PROGRAM), (CARRIERS_VLLM, STAYS_BY_HASH)],
    "carrier-baggage": [
        (CARRIERS, EACH_PROGRAM),
        (HOSTILE_CARRIERS, "test_each_bad_value_is_left_out_alone_and_named_by_kind"),
        (BODIES, "test_baggage_counts_even_when_the_body_is_too_long_to_be_read"),
    ],
    "carrier-hash": [
        (CARRIED, "test_a_program_that_echoes_nothing_stays_on_one_rank_and_is_told_which"),
        (CARRIERS_VLLM, STAYS_BY_HASH),
    ],
    "carrier-body": [
        (BODIES, "test_the_application_gets_every_message_as_it_came"),
        (BODIES, "test_a_body_that_need_not_be_read_is_left_to_the_application"),
        (BODIES, "test_a_request_that_is_refused_by_its_headers_is_answered_without_its_body"),
    ],
    "carrier-total": [
        (HOSTILE_CARRIERS, "test_any_bytes_in_any_carrier_give_valid_markers_or_none")
    ],
    "news-told": [
        (TURNS, "test_the_server_is_told_which_wait_follows_and_that_a_session_has_ended"),
        (TURNS, "test_a_server_that_does_not_speak_the_protocol_is_told_nothing"),
        (TURNS, "test_a_server_that_takes_no_news_costs_nobody_a_call"),
    ],
    "news-turns": [
        (NEWS_READ, "test_turns_are_read_with_what_is_known_of_them"),
        (NEWS, "test_turns_and_ends_are_counted_and_handed_on"),
        (CARRIERS_VLLM, "test_news_is_taken_and_counted_by_the_process_that_hears_it"),
    ],
    "news-end": [
        (
            NEWS,
            "test_a_turn_that_names_finished_sessions_or_its_own_end_is_news_of_the_same_kind",
        ),
        (NEWS, "test_the_end_of_a_session_is_told_when_its_last_answer_has_gone"),
    ],
    "news-bounds": [
        (NEWS_READ, "test_bad_items_are_left_out_and_of_good_ones_the_bad_keys"),
        (NEWS_READ, "test_no_more_than_256_items_are_taken"),
        (NEWS, "test_more_than_64_kb_is_refused_before_it_has_all_come"),
    ],
    "news-advisory": [(NEWS, "test_news_moves_no_session")],
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
