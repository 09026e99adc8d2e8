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
mod expiry;
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

/// Lists all behaviours by topic, and passes the list and the database to a macro.
macro_rules! suite {
    ($with:ident, $on:expr) => {
        $with! {
            $on;
            appends: sequences_have_no_gaps, sequences_have_no_gaps_with_many_writers,
                unexpected_sequence_is_a_conflict, a_thread_and_its_run_begin_in_one_batch,
                run_may_precede_its_thread_in_a_batch, only_threads_have_runs_and_forks, log_cannot_be_opened_twice, batch_is_written_completely_or_not_at_all,
                batch_with_duplicate_names_is_rejected, names_with_control_characters_are_refused,
                any_content_round_trips, huge_content_round_trips,
                reading_accepts_any_position_and_limit, logs_are_listed_by_time_and_in_pages;
            once: repeated_batch_returns_the_same_receipt, mixed_idempotency_keys_are_refused,
                decisions_with_different_keys_are_distinct, repeated_receipt_has_the_order_of_the_first,
                repeated_batches_from_two_nodes_are_written_once;
            leases: leased_log_accepts_only_its_holder, paused_holder_cannot_write_after_its_lease_expired,
                each_lease_has_a_higher_fence, a_lease_expires, renewed_lease_stays_valid,
                a_released_log_is_free, log_can_be_leased_before_it_exists, one_of_many_candidates_gets_the_lease,
                runs_without_a_lease_are_found, leased_runs_are_not_reported_as_stale,
                run_with_an_expired_request_is_found;
            events: events_are_numbered_from_one, events_are_read_after_any_number,
                a_run_is_followed_on_the_same_node, a_run_is_followed_from_another_node,
                many_readers_can_follow_one_run, waiting_ends_when_the_store_closes;
            run_events: deltas_are_packed_without_waiting, commit_is_ordered_after_earlier_pushes,
                old_pack_is_written, pack_is_written_on_close,
                failure_is_reported_to_the_next_commit, events_of_a_refused_commit_are_not_lost,
                events_of_a_repeated_commit_are_not_lost, packs_are_split_by_item,
                disconnecting_callers_lose_and_repeat_nothing, early_disconnects_lose_no_events;
            people: pending_requests_are_listed, one_of_two_deciders_wins, request_is_decided_once,
                expired_requests_cannot_be_decided, requests_of_erased_logs_are_not_listed;
            vault: a_turn_is_found_by_its_claim, all_keys_of_a_turn_find_it, id_finds_a_turn_only_if_it_is_unique,
                chain_lookup_finds_the_newest_turn_and_counts_the_others,
                newest_turns_with_a_key_are_listed, turns_reference_their_parents,
                another_tenants_turns_are_not_found, forgotten_turn_is_found_as_forgotten,
                records_of_a_turn_are_read_and_forgotten_one_by_one,
                turn_of_another_node_makes_an_id_ambiguous,
                turn_that_another_node_forgot_is_found_as_forgotten,
                keys_are_found_before_and_after_they_are_indexed, erasure_starts_a_new_epoch;
            forks: a_fork_shares_history_by_reference, forks_nest, a_fork_at_zero_shares_nothing,
                invalid_forks_are_refused, reading_crosses_fork_boundaries,
                a_rewind_ends_a_span, a_fork_keeps_the_rewinds_before_it;
            state: checkpoints_are_valid_only_in_their_history, fork_ignores_later_checkpoints_of_its_parent,
                rewind_restores_the_earlier_state, opening_reads_a_bounded_number_of_records,
                checkpoints_are_due_now_and_then;
            forgetting: forgetting_a_thread_includes_its_runs, a_forgotten_item_is_gone_everywhere,
                copies_are_forgotten_with_what_they_repeat, run_can_be_forgotten_without_its_thread,
                a_fork_forgets_only_its_own, forgetting_destroys_the_checkpoints_after_it,
                leased_log_can_be_forgotten, forgetting_reaches_backups,
                interrupted_forgetting_is_completed, forgotten_thread_accepts_no_runs,
                item_is_forgotten_in_all_ancestor_logs, records_without_item_ids_are_forgotten_too,
                checkpoints_written_during_forgetting_are_destroyed, item_is_found_in_a_thread_of_any_length,
                logs_created_during_forgetting_are_forgotten, records_that_contain_a_forgotten_item_are_destroyed,
                large_contents_are_stored_once,
                large_contents_are_not_shared_by_tenants;
            retention: old_threads_expire, oldest_threads_are_deleted_beyond_the_size_limit, thread_with_forks_is_retained,
                forks_without_content_are_deleted_with_their_thread, threads_used_during_retention_are_kept;
            expiry: classes_expire_separately, conversations_in_use_keep_all_their_data,
                expiry_covers_many_pages_and_one_tenant;
            carrying: export_and_import_preserve_everything, import_keeps_forgotten_content_forgotten,
                import_of_a_fork_keeps_forgotten_content_forgotten, run_without_a_thread_is_exported_and_imported,
                interrupted_import_continues, two_nodes_can_import_concurrently,
                import_stops_at_logs_that_others_write,
                redacted_export_verifies_and_contains_no_secret, a_changed_export_is_refused,
                an_import_changes_nothing_that_exists, a_backup_is_made_while_others_write,
                the_master_key_is_changed_while_others_write,
                writes_under_an_earlier_key_are_detected, rotation_adopts_a_key_that_another_node_introduced;
            keeping: api_keys_are_stored_as_hashes, limits_of_api_keys_change,
                concurrent_changes_of_limits_are_all_kept, tenants_see_nothing_of_each_other,
                tenants_with_logs_or_keys_are_listed_and_counted,
                relaxed_writes_are_stored, short_queue_preserves_write_order, closed_store_reports_that_it_is_closed,
                nodes_can_create_the_store_concurrently;
            proofs: intact_store_verifies, store_is_verified_during_writes,
                verification_ends_during_continuous_writes, concurrent_erasure_is_not_damage,
                manifests_are_signed_under_load_and_at_the_end, manifest_of_another_store_is_rejected_as_witness;
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
