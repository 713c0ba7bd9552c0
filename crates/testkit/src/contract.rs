//! The contract of a store, one function per clause, so that a failing test names the violated clause.
//!
//! Each module has the clauses of one trait of the port; `find` has those of `StepStore` about queries.
//! A clause gets an empty store and panics when it is violated. A backend runs all of them:
//!
//! ```ignore
//! mod memory {
//!     stepback_testkit::store_contract!(|clause: Clause| clause(&MemoryStore::new(u64::MAX)));
//! }
//! ```

use stepback_store::port::Store;

pub mod commit;
pub mod find;
pub mod lookup;
pub mod maintenance;
pub mod objects;
pub mod operations;
pub mod plans;
pub mod refs;
pub mod search;
pub mod sessions;
pub mod step_chain;
pub mod steps;

/// One promise, checked on an empty store.
pub type Clause = fn(&dyn Store);

/// Lists the clauses once: for [`CLAUSES`], and for one test each in a backend's test file.
macro_rules! clauses {
    ($d:tt $($module:ident::$name:ident,)*) => {
        /// Every clause by name.
        pub const CLAUSES: &[(&str, Clause)] = &[$((stringify!($name), $module::$name)),*];

        /// Expands to one `#[test]` per clause. The argument is called with the clause and gives it an empty store.
        #[macro_export]
        macro_rules! store_contract {
            ($d run:expr) => {
                $(#[test]
                fn $name() {
                    ($d run)($crate::contract::$module::$name);
                })*
            };
        }
    };
}

clauses! { $
    objects::what_is_written_reads_back,
    objects::an_object_is_found_only_as_its_own_kind,
    objects::an_object_is_stored_once,
    objects::a_similar_object_changes_nothing_but_the_size,
    objects::a_useless_similar_object_is_no_harm,
    objects::an_unfinished_batch_leaves_nothing,
    objects::a_finished_batch_is_invisible_until_its_commit,
    objects::a_batch_contains_what_it_wrote_and_what_is_stored,
    objects::two_batches_at_once_both_commit,
    objects::batches_may_commit_in_another_order_than_they_began,
    objects::a_large_object_reads_back,
    objects::many_small_objects_read_back,
    objects::threads_write_into_one_batch,
    objects::threads_read_while_others_commit,
    objects::every_object_is_visited_once,
    commit::a_failed_commit_leaves_nothing,
    commit::a_commit_applies_its_mutations_in_order,
    commit::concurrent_commits_leave_no_gap_and_no_double,
    commit::ids_are_taken_once,
    commit::the_mark_moves_with_every_commit,
    sessions::a_workspace_is_registered_once,
    sessions::a_workspace_can_get_another_root,
    sessions::workspaces_and_sessions_are_listed_oldest_first,
    sessions::sessions_with_open_calls_are_working,
    sessions::what_is_known_about_a_session_grows,
    steps::steps_are_numbered_per_workspace,
    steps::checkpoints_are_listed_newest_first,
    steps::a_checkpoint_keeps_every_field,
    steps::a_step_is_found_by_its_number,
    steps::steps_are_listed_by_what_is_asked_for,
    steps::annotating_replaces_the_annotation,
    steps::hidden_checkpoints_stay_listed_and_come_back,
    steps::only_hidden_checkpoints_are_purged,
    step_chain::every_step_is_linked_to_the_one_before,
    step_chain::what_may_change_is_not_linked,
    step_chain::a_failed_commit_moves_no_head,
    step_chain::concurrent_appenders_keep_one_chain,
    step_chain::chain_entries_are_read_in_parts,
    find::steps_are_found_by_every_condition,
    find::steps_are_found_by_their_context,
    find::steps_are_counted_by_agent_and_kind,
    find::a_query_is_gone_through_page_by_page,
    find::commits_are_followed_without_a_gap,
    operations::operations_are_numbered_per_workspace,
    operations::an_operation_keeps_every_field,
    operations::operations_are_listed_newest_first,
    operations::a_finished_operation_drops_its_journal,
    operations::an_undone_operation_can_come_back,
    operations::unfinished_operations_are_those_being_applied,
    refs::a_reference_moves_only_from_what_the_caller_saw,
    refs::of_many_racing_for_a_reference_one_wins,
    refs::references_are_listed_by_prefix,
    lookup::a_look_answers_everything,
    search::words_are_found_and_marked,
    search::a_substring_is_found_anywhere,
    search::a_search_is_limited_and_goes_on,
    search::the_index_follows_the_log,
    plans::a_plan_reads_back_until_it_is_removed,
    plans::a_plan_is_removed_by_one_caller,
    plans::plans_are_listed_newest_first,
    plans::pruning_keeps_the_newest_plans,
    plans::plans_are_not_history,
    maintenance::a_sweep_keeps_the_living_and_frees_the_dead,
    maintenance::a_sweep_of_everything_leaves_the_log,
    maintenance::an_older_batch_is_refused_after_a_sweep,
    maintenance::a_sweep_is_refused_when_something_was_committed,
    maintenance::what_a_living_object_is_stored_against_survives,
    maintenance::a_freed_object_can_be_written_again,
    maintenance::sweeping_an_empty_store_is_no_harm,
    maintenance::usage_grows_and_shrinks,
    maintenance::the_usage_after_a_sweep_is_known_before,
    maintenance::a_healthy_store_has_no_complaints,
}

/// Runs all clauses, in order; `run` gives each an empty store.
pub fn store(run: impl Fn(Clause)) {
    for (name, clause) in CLAUSES {
        eprintln!("{name}");
        run(*clause);
    }
}

/// All objects' hashes.
fn hashes(store: &dyn Store) -> Vec<stepback_model::hash::Hash> {
    let mut hashes = Vec::new();
    store.for_each_object(&mut |object| hashes.push(object.hash)).unwrap();
    hashes
}
