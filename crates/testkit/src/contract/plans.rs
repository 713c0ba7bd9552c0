//! Clauses about plans: unchanged content, removal, and independence of the log.

use std::collections::HashSet;

use stepback_model::ids::WorkspaceId;
use stepback_model::time::Timestamp;
use stepback_store::memory::MemoryStore;
use stepback_store::port::{KEPT_PLANS, Store, StoredPlan};

fn plan(id: &str, workspace: u8, micros: i64) -> StoredPlan {
    StoredPlan {
        id: id.into(),
        workspace: WorkspaceId::from_bytes([workspace; 16]),
        created_at: Timestamp::from_micros(micros),
        body: format!("{id}\0\u{ff}").into_bytes(),
    }
}

fn ids(plans: &[StoredPlan]) -> Vec<&str> {
    plans.iter().map(|plan| plan.id.as_str()).collect()
}

/// A plan is read back unchanged, can be replaced, and no longer exists after its removal.
pub fn a_plan_reads_back_until_it_is_removed(store: &dyn Store) {
    assert_eq!(store.plan("one").unwrap(), None);
    let (mut one, two) = (plan("one", 1, 10), plan("zwei \0🦀", 1, 20));
    for plan in [&one, &two] {
        store.put_plan(plan).unwrap();
        assert_eq!(store.plan(&plan.id).unwrap().as_ref(), Some(plan));
    }
    one.body = vec![0xff, 0];
    one.created_at = Timestamp::from_micros(30);
    store.put_plan(&one).unwrap();
    assert_eq!(store.plan("one").unwrap(), Some(one));
    assert!(store.remove_plan("one").unwrap());
    assert!(!store.remove_plan("one").unwrap());
    assert_eq!(store.plan("one").unwrap(), None);
    assert_eq!(store.plan(&two.id).unwrap(), Some(two));
}

/// Of several threads that remove one plan, one succeeds.
pub fn a_plan_is_removed_by_one_caller(store: &dyn Store) {
    store.put_plan(&plan("one", 1, 10)).unwrap();
    let removed: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| store.remove_plan("one").unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(removed.iter().filter(|removed| **removed).count(), 1);
}

/// Plans are listed newest first, each in its own workspace.
pub fn plans_are_listed_newest_first(store: &dyn Store) {
    for (id, workspace, micros) in [("b", 1, 20), ("c", 1, 30), ("a", 1, 10), ("other", 2, 15), ("d", 1, 20)]
    {
        store.put_plan(&plan(id, workspace, micros)).unwrap();
    }
    let plans = store.plans(WorkspaceId::from_bytes([1; 16])).unwrap();
    assert_eq!(ids(&plans), ["c", "d", "b", "a"]);
    assert_eq!(plans[0], plan("c", 1, 30));
    assert_eq!(store.plans(WorkspaceId::from_bytes([3; 16])).unwrap(), []);
}

/// Pruning removes old plans and all but the newest, and leaves other workspaces alone.
pub fn pruning_keeps_the_newest_plans(store: &dyn Store) {
    let workspace = WorkspaceId::from_bytes([1; 16]);
    store.put_plan(&plan("other", 2, 0)).unwrap();
    for number in 0..KEPT_PLANS as i64 + 3 {
        store.put_plan(&plan(&format!("{number:04}"), 1, number)).unwrap();
    }
    store.prune_plans(workspace, Timestamp::from_micros(2)).unwrap();
    let remaining = store.plans(workspace).unwrap();
    assert_eq!((remaining.len(), remaining.last().unwrap().id.as_str()), (KEPT_PLANS, "0003"));
    store.prune_plans(workspace, Timestamp::from_micros(KEPT_PLANS as i64)).unwrap();
    assert_eq!(ids(&store.plans(workspace).unwrap()), ["0258", "0257", "0256"]);
    assert!(store.plan("other").unwrap().is_some());
}

/// A plan neither moves the sequence of commits, nor is it copied, and a sweep keeps it.
pub fn plans_are_not_history(store: &dyn Store) {
    let mark = store.commit_seq().unwrap();
    store.put_plan(&plan("one", 1, 10)).unwrap();
    store.put_plan(&plan("two", 1, 10)).unwrap();
    store.remove_plan("two").unwrap();
    store.prune_plans(WorkspaceId::from_bytes([1; 16]), Timestamp::from_micros(0)).unwrap();
    assert_eq!(store.commit_seq().unwrap(), mark);
    let copy = MemoryStore::new(u64::MAX);
    stepback_store::copy::copy(store, &copy, &mut |_, _, _| ()).unwrap();
    let copy: &dyn Store = &copy;
    assert_eq!(copy.workspaces().unwrap(), []);
    assert_eq!(copy.plan("one").unwrap(), None);
    store.sweep(&HashSet::new(), mark).unwrap();
    assert!(store.plan("one").unwrap().is_some());
}
