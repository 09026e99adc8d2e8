//! A conformance suite for all backends.
//!
//! Each behaviour is one function, which runs on each [`harness::Database`].

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]
#![expect(clippy::unnecessary_wraps, reason = "expected values have the compared type")]

mod appends;
mod carrying;
mod events;
mod forgetting;
mod forks;
mod harness;
mod keeping;
mod leases;
mod once;
mod people;
mod proofs;
mod retention;
mod run_events;
mod state;
mod vault;

/// Lists all behaviours by theme, and passes them to a macro together with the database.
macro_rules! suite {
    ($with:ident, $on:expr) => {
        $with! {
            $on;
            appends: sequences_have_no_gaps, sequences_have_no_gaps_with_many_writers,
                an_expected_sequence_holds_or_conflicts, a_thread_and_its_run_begin_in_one_batch,
                a_run_may_stand_before_its_thread, only_threads_have_runs_and_forks, a_log_begins_once, a_batch_is_kept_whole_or_not_at_all,
                a_batch_names_everything_once, names_with_control_characters_are_refused,
                any_content_comes_back_as_it_was, a_huge_content_comes_back_as_it_was,
                reading_takes_any_place_and_limit, logs_are_listed_by_time_and_in_pages;
            once: repeated_batch_returns_the_same_receipt, mixed_names_are_refused,
                decisions_are_told_apart, a_repeated_receipt_has_the_order_of_the_first,
                repeats_from_two_nodes_happen_once;
            leases: leased_log_accepts_only_its_holder, a_paused_holder_writes_nothing_late,
                each_lease_has_a_higher_fence, a_lease_expires, a_renewed_lease_goes_on,
                a_released_log_is_free, a_log_is_held_before_it_begins, one_of_many_gets_the_lease,
                runs_without_a_lease_are_found, leased_runs_are_left_alone,
                a_run_that_waits_for_what_is_too_late_is_found;
            events: events_are_numbered_from_one, events_are_read_after_any_number,
                a_run_is_followed_on_the_same_node, a_run_is_followed_from_another_node,
                many_follow_one_run, waiting_ends_when_the_store_closes;
            run_events: deltas_are_packed_without_waiting, a_commit_comes_after_what_was_pushed_before_it,
                a_pack_is_written_when_it_is_old, a_pack_is_written_at_the_end,
                a_failure_is_told_to_the_next_commit, what_a_refused_commit_carried_is_not_lost,
                what_a_repeated_commit_carried_is_not_lost, packs_are_split_by_what_they_are_about,
                callers_who_leave_lose_and_repeat_nothing, early_leavers_lose_no_events;
            people: pending_requests_are_listed, one_of_two_deciders_wins, nothing_is_decided_twice,
                nothing_is_decided_too_late;
            vault: a_turn_is_found_by_its_claim, all_keys_of_a_turn_find_it, an_id_finds_only_what_it_names_alone,
                a_chain_finds_the_newest_and_counts_the_others, turns_know_their_parents,
                another_tenants_turns_are_not_found, a_forgotten_turn_says_so,
                what_is_destroyed_begins_an_era;
            forks: a_fork_shares_history_by_reference, forks_nest, a_fork_at_zero_shares_nothing,
                a_fork_ends_where_its_parent_does, reading_crosses_every_border,
                a_rewind_ends_a_span, a_fork_keeps_the_rewinds_before_it;
            state: checkpoints_are_valid_only_in_their_history, a_fork_never_takes_its_parents_later_checkpoint,
                state_after_a_rewind_is_the_state_before, opening_reads_a_bounded_number_of_records,
                checkpoints_are_due_now_and_then;
            forgetting: forgetting_a_thread_includes_its_runs, a_forgotten_item_is_gone_everywhere,
                copies_are_forgotten_with_what_they_repeat, a_run_is_forgotten_by_itself,
                a_fork_forgets_only_its_own, forgetting_destroys_the_checkpoints_after_it,
                a_held_log_is_forgotten_too, forgetting_reaches_backups,
                what_was_left_undone_is_finished, nothing_begins_on_a_gone_thread,
                an_item_is_forgotten_along_the_whole_line, unmarked_records_are_forgotten_with_the_others,
                no_checkpoint_slips_through, an_item_is_found_however_long_its_thread_is,
                what_begins_meanwhile_is_forgotten_too, who_holds_a_forgotten_item_goes_with_it,
                large_contents_are_kept_once,
                large_contents_are_not_shared_by_tenants;
            retention: old_threads_expire, the_oldest_threads_make_room, a_thread_stays_for_its_forks,
                forks_without_content_go_with_their_thread, what_is_used_meanwhile_stays;
            carrying: export_and_import_preserve_everything, an_import_keeps_what_is_gone_gone,
                a_fork_alone_keeps_what_is_gone_gone, a_run_without_a_thread_is_carried_too,
                an_interrupted_import_goes_on, two_may_import_at_once,
                an_import_stops_where_others_write,
                a_redacted_export_is_proven_and_holds_no_secret, a_changed_export_is_refused,
                an_import_changes_nothing_that_exists, a_backup_is_made_while_others_write,
                the_master_key_is_changed_while_others_write,
                who_writes_under_an_earlier_key_is_noticed, a_key_that_another_node_began_with_is_one_key;
            keeping: api_keys_are_stored_as_hashes, tenants_see_nothing_of_each_other,
                tenants_with_logs_or_keys_are_listed_and_counted,
                relaxed_writes_are_kept, a_short_queue_keeps_the_order, a_closed_store_says_so,
                nodes_may_begin_at_once;
            proofs: intact_store_verifies, a_store_is_proven_while_others_write,
                a_proof_ends_though_others_go_on, what_is_destroyed_meanwhile_is_no_damage,
                manifests_are_signed_under_load_and_at_the_end, a_witness_is_another_stores_or_holds;
        }
    };
}

/// Declares one test per behaviour.
macro_rules! tests {
    ($on:expr; $($theme:ident: $($behaviour:ident),+;)+) => {
        $(mod $theme {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                crate::$theme::$behaviour($on).await;
            })+
        })+
    };
}

mod sqlite {
    suite!(tests, crate::harness::Database::Sqlite);
}

mod sqlite_with_key {
    suite!(tests, crate::harness::Database::SqliteWithKey);
}

mod postgres {
    suite!(tests, crate::harness::Database::Postgres);
}
