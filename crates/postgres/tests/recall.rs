//! What a process recalls instead of asking is compared with what is there before anything rests on it.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::record::{Session, SessionInfo, Step};
use stepback_postgres::PostgresStore;
use stepback_store::StoreError;
use stepback_store::port::{BatchAnswers, Mutation, Questions, Receipt, StepQuery, Store};
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::{Sample, append};

const HEAD: &str = "head/w";

/// Two processes with the same database, and a session that the first has just looked at.
struct Two {
    server: PostgresServer,
    one: PostgresStore,
    other: PostgresStore,
    sample: Sample,
    session: Session,
    _local: tempfile::TempDir,
}

impl Two {
    fn new() -> Self {
        let server = PostgresServer::start();
        let url = server.database();
        let local = tempfile::tempdir().unwrap();
        let one = PostgresStore::open(&url, &local.path().join("one")).unwrap();
        let other = PostgresStore::open(&url, &local.path().join("other")).unwrap();
        let sample = Sample::new(1);
        let (_, session) = sample.begin(&one, b"/w");
        let two = Self { server, one, other, sample, session, _local: local };
        assert!(two.recalled(&two.one).is_none(), "nothing was looked at");
        let looked = two.looked(&two.one);
        two.commit(&two.one, &looked, "at first", 1).unwrap();
        two
    }

    fn asked<T>(&self, ask: impl FnOnce(&Questions<'_>) -> T) -> T {
        ask(&Questions { steps: &[], references: &[HEAD.into()], sessions: &[self.session.id] })
    }

    fn recalled(&self, store: &PostgresStore) -> Option<BatchAnswers> {
        self.asked(|questions| store.recall(questions))
    }

    fn looked(&self, store: &PostgresStore) -> BatchAnswers {
        self.asked(|questions| store.look(questions)).unwrap()
    }

    /// Appends steps to the session, which has another title now.
    fn commit(
        &self,
        store: &PostgresStore,
        answers: &BatchAnswers,
        title: &str,
        steps: usize,
    ) -> Result<Receipt, StoreError> {
        let batch = store.begin_on(answers)?;
        let state = batch.write(ObjectKind::Blob, b"the same for all", None)?;
        let info = SessionInfo { title: Some(title.into()), ..SessionInfo::default() };
        let mut mutations = vec![Mutation::SetSessionInfo { session: self.session.id, info: Box::new(info) }];
        mutations.extend((0..steps).map(|_| append(self.step(state))));
        store.commit(Some(batch.finish()?), &mutations)
    }

    fn step(&self, state: Hash) -> Step {
        self.sample.step(self.session.id, state)
    }

    fn steps(&self) -> usize {
        self.other.steps(self.session.workspace, &StepQuery::default()).unwrap().len()
    }

    /// What was recalled was wrong: nothing happened, nothing is recalled, and who looks gets on.
    fn refused(&self, recalled: &BatchAnswers, steps: usize) {
        let before = (self.steps(), self.other.session(self.session.id).unwrap());
        let connections = || {
            let sql = "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity
                WHERE datname = 'test0' AND pid <> pg_backend_pid()";
            self.server.sql("test0", sql)
        };
        let connected = connections();
        let refused = self.commit(&self.one, recalled, "overtaken", steps);
        assert!(matches!(refused, Err(StoreError::Moved { .. })), "{refused:?}");
        assert_eq!(
            connections(),
            connected,
            "a call that is refused leaves nothing that has to be cleared away"
        );
        assert_eq!((self.steps(), self.other.session(self.session.id).unwrap()), before);
        assert!(self.recalled(&self.one).is_none(), "it believes it still");
        let looked = self.looked(&self.one);
        assert_eq!(looked.sessions, [before.1]);
        self.commit(&self.one, &looked, "at last", steps).unwrap();
        assert_eq!(self.steps(), before.0 + steps);
    }
}

#[test]
fn what_was_committed_here_need_not_be_asked_for() {
    let two = Two::new();
    for (at, steps) in [1, 1, 3, 1].into_iter().enumerate() {
        let recalled = two.recalled(&two.one).unwrap();
        let looked = two.looked(&two.other);
        assert_eq!((recalled.epoch, recalled.references), (looked.epoch, looked.references));
        assert_eq!(recalled.sessions, looked.sessions, "{at}");
        let recalled = two.recalled(&two.one).unwrap();
        let receipt = two.commit(&two.one, &recalled, &format!("title {at}"), steps).unwrap();
        assert_eq!(receipt.steps.len(), steps);
    }
    assert_eq!(two.steps(), 7);
    let title = two.other.session(two.session.id).unwrap().unwrap().info.title;
    assert_eq!(title.as_deref(), Some("title 3"));
    assert_eq!(two.one.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_session_that_somebody_else_changed_is_looked_at_again() {
    let two = Two::new();
    for steps in [1, 2] {
        let recalled = two.recalled(&two.one).unwrap();
        let seen = two.looked(&two.other);
        two.commit(&two.other, &seen, "in between", steps).unwrap();
        two.refused(&recalled, steps);
    }
}

#[test]
fn who_looked_and_was_overtaken_looks_again() {
    let two = Two::new();
    let (one, other) = (two.looked(&two.one), two.looked(&two.other));
    two.commit(&two.other, &other, "first", 1).unwrap();
    two.refused(&one, 1);
    // Where nobody compares, what was looked at is good enough.
    let batch = two.one.begin_on(&two.looked(&two.one)).unwrap();
    let value = two.step(Hash::from_bytes([7; 32])).id;
    let set = Mutation::SetRef { name: "elsewhere".into(), expected: None, value };
    two.one.commit(Some(batch.finish().unwrap()), &[set]).unwrap();
}

#[test]
fn a_reference_that_somebody_else_moved_is_looked_at_again() {
    let two = Two::new();
    for steps in [1, 2] {
        let recalled = two.recalled(&two.one).unwrap();
        let expected = two.other.reference(HEAD).unwrap();
        let value = two.step(Hash::from_bytes([7; 32])).id;
        two.other.commit(None, &[Mutation::SetRef { name: HEAD.into(), expected, value }]).unwrap();
        two.refused(&recalled, steps);
    }
    // One that is gone was moved as well.
    let recalled = two.recalled(&two.one).unwrap();
    two.other.commit(None, &[Mutation::DropRef { name: HEAD.into() }]).unwrap();
    two.refused(&recalled, 1);
}

#[test]
fn a_step_that_is_there_already_is_found_by_a_look() {
    let two = Two::new();
    let step = two.step(Hash::from_bytes([7; 32]));
    two.other.commit(None, &[append(step.clone())]).unwrap();
    let recalled = two.recalled(&two.one).unwrap();
    assert!(recalled.stored.is_empty(), "what is believed");
    let batch = two.one.begin_on(&recalled).unwrap();
    let refused = two.one.commit(Some(batch.finish().unwrap()), &[append(step.clone())]);
    assert!(matches!(refused, Err(StoreError::Exists { .. })), "{refused:?}");
    let asked = Questions { steps: &[step.id], references: &[], sessions: &[] };
    assert!(two.one.look(&asked).unwrap().stored.contains(&step.id));
}

#[test]
fn what_else_is_committed_is_not_recalled() {
    let two = Two::new();
    let recalled = two.recalled(&two.one).unwrap();
    let value = two.step(Hash::from_bytes([7; 32])).id;
    // A commit that nobody compares with what was recalled does not rest on it.
    let batch = two.one.begin_on(&recalled).unwrap();
    let set = Mutation::SetRef { name: "elsewhere".into(), expected: None, value };
    let refused = two.one.commit(Some(batch.finish().unwrap()), std::slice::from_ref(&set));
    assert!(matches!(refused, Err(StoreError::Moved { .. })), "{refused:?}");
    two.looked(&two.one);
    assert!(two.recalled(&two.one).is_some());
    two.one.commit(None, &[set]).unwrap();
    assert!(two.recalled(&two.one).is_none());
}

#[test]
fn nothing_is_recalled_across_connections() {
    let mut two = Two::new();
    let recalled = two.recalled(&two.one).unwrap();
    two.server.crash_and_restart();
    // What is there now may be less than what was stored: a server that took over, or one that was brought back from a copy.
    let refused = two.commit(&two.one, &recalled, "to another", 1);
    assert!(matches!(refused, Err(StoreError::Collected)), "{refused:?}");
    assert!(two.recalled(&two.one).is_none());
    let looked = two.looked(&two.one);
    two.commit(&two.one, &looked, "after a look", 1).unwrap();
    assert!(two.recalled(&two.one).is_some());
    assert_eq!(two.steps(), 2);
}

#[test]
fn objects_that_were_freed_are_stored_again() {
    let two = Two::new();
    let recalled = two.recalled(&two.one).unwrap();
    // The object that every step of this has, and that the first process knows to be stored.
    two.other.sweep(&std::collections::HashSet::new(), two.other.commit_seq().unwrap()).unwrap();
    let refused = two.commit(&two.one, &recalled, "too late", 1);
    assert!(matches!(refused, Err(StoreError::Collected)), "{refused:?}");
    assert_eq!(two.server.sql("test0", "SELECT count(*) FROM stepback_objects").trim(), "0");
    let looked = two.looked(&two.one);
    two.commit(&two.one, &looked, "again", 1).unwrap();
    assert_eq!(two.server.sql("test0", "SELECT count(*) FROM stepback_objects").trim(), "1");
}
