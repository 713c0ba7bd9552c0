//! A commit that relies on what was read fails if another process has changed it since.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::record::{Session, SessionInfo, Step};
use stepback_postgres::PostgresStore;
use stepback_store::StoreError;
use stepback_store::port::{BatchAnswers, Mutation, Questions, Receipt, StepQuery};
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::{Sample, append};

const HEAD: &str = "head/w";

/// Two processes with the same database and a session.
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
        let looked = two.looked(&two.one);
        two.commit(&two.one, &looked, "at first", 1).unwrap();
        two
    }

    fn looked(&self, store: &PostgresStore) -> BatchAnswers {
        let questions = Questions { steps: &[], references: &[HEAD.into()], sessions: &[self.session.id] };
        store.look(&questions).unwrap()
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

    /// What was read has changed: nothing happens, and a process that reads again succeeds.
    fn refused(&self, read: &BatchAnswers, steps: usize) {
        let before = (self.steps(), self.other.session(self.session.id).unwrap());
        let connections = || {
            let sql = "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity
                WHERE datname = 'test0' AND pid <> pg_backend_pid()";
            self.server.sql("test0", sql)
        };
        let connected = connections();
        let refused = self.commit(&self.one, read, "overtaken", steps);
        assert!(matches!(refused, Err(StoreError::Moved { .. })), "{refused:?}");
        assert_eq!(
            connections(),
            connected,
            "a call that is refused leaves nothing that has to be cleared away"
        );
        assert_eq!((self.steps(), self.other.session(self.session.id).unwrap()), before);
        let looked = self.looked(&self.one);
        assert_eq!(looked.sessions, [before.1]);
        self.commit(&self.one, &looked, "at last", steps).unwrap();
        assert_eq!(self.steps(), before.0 + steps);
    }
}

#[test]
fn steps_are_appended_to_what_was_read() {
    let two = Two::new();
    for (at, steps) in [1, 1, 3, 1].into_iter().enumerate() {
        let looked = two.looked(&two.one);
        let receipt = two.commit(&two.one, &looked, &format!("title {at}"), steps).unwrap();
        assert_eq!(receipt.steps.len(), steps);
    }
    assert_eq!(two.steps(), 7);
    let title = two.other.session(two.session.id).unwrap().unwrap().info.title;
    assert_eq!(title.as_deref(), Some("title 3"));
    assert_eq!(two.one.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_session_that_another_process_changed_is_read_again() {
    let two = Two::new();
    for steps in [1, 2] {
        let read = two.looked(&two.one);
        let seen = two.looked(&two.other);
        two.commit(&two.other, &seen, "in between", steps).unwrap();
        two.refused(&read, steps);
    }
    // Where nothing is compared, what was read is good enough.
    let batch = two.one.begin_on(&two.looked(&two.one)).unwrap();
    let value = two.step(Hash::from_bytes([7; 32])).id;
    let set = Mutation::SetRef { name: "elsewhere".into(), expected: None, value };
    two.one.commit(Some(batch.finish().unwrap()), &[set]).unwrap();
}

/// A session that did change is not made up for by one that is not compared.
#[test]
fn one_changed_session_among_several_refuses_the_commit() {
    let two = Two::new();
    let free = two.sample.session(two.session.workspace);
    two.one.commit(None, &[Mutation::AddSession(free.clone())]).unwrap();
    let read = two.looked(&two.one);
    let seen = two.looked(&two.other);
    two.commit(&two.other, &seen, "in between", 1).unwrap();
    let batch = two.one.begin_on(&read).unwrap();
    let set = |session: &Session| Mutation::SetSessionInfo {
        session: session.id,
        info: Box::new(SessionInfo { title: Some("overtaken".into()), ..SessionInfo::default() }),
    };
    let step = append(two.step(Hash::from_bytes([7; 32])));
    let refused = two.one.commit(Some(batch.finish().unwrap()), &[set(&free), set(&two.session), step]);
    assert!(matches!(refused, Err(StoreError::Moved { .. })), "{refused:?}");
    assert_eq!(two.one.session(free.id).unwrap().unwrap().info.title, free.info.title);
}

#[test]
fn a_reference_that_another_process_moved_is_read_again() {
    let two = Two::new();
    for steps in [1, 2] {
        let read = two.looked(&two.one);
        let expected = two.other.reference(HEAD).unwrap();
        let value = two.step(Hash::from_bytes([7; 32])).id;
        two.other.commit(None, &[Mutation::SetRef { name: HEAD.into(), expected, value }]).unwrap();
        two.refused(&read, steps);
    }
    // One that is gone was moved as well.
    let read = two.looked(&two.one);
    two.other.commit(None, &[Mutation::DropRef { name: HEAD.into() }]).unwrap();
    two.refused(&read, 1);
}

#[test]
fn a_step_that_is_stored_already_is_refused() {
    let two = Two::new();
    let step = two.step(Hash::from_bytes([7; 32]));
    let batch = two.one.begin_on(&two.looked(&two.one)).unwrap();
    two.other.commit(None, &[append(step.clone())]).unwrap();
    let refused = two.one.commit(Some(batch.finish().unwrap()), &[append(step.clone())]);
    assert!(matches!(refused, Err(StoreError::Exists { .. })), "{refused:?}");
    let asked = Questions { steps: &[step.id], references: &[], sessions: &[] };
    assert!(two.one.look(&asked).unwrap().stored.contains(&step.id));
}

#[test]
fn objects_that_were_freed_are_stored_again() {
    let two = Two::new();
    let read = two.looked(&two.one);
    two.other.sweep(&std::collections::HashSet::new(), two.other.commit_seq().unwrap()).unwrap();
    let refused = two.commit(&two.one, &read, "too late", 1);
    assert!(matches!(refused, Err(StoreError::Collected)), "{refused:?}");
    assert_eq!(two.server.sql("test0", "SELECT count(*) FROM stepback_objects").trim(), "0");
    let looked = two.looked(&two.one);
    two.commit(&two.one, &looked, "again", 1).unwrap();
    assert_eq!(two.server.sql("test0", "SELECT count(*) FROM stepback_objects").trim(), "1");
}
