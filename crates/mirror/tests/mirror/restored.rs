//! Random histories: what is restored is what was recorded, with what was hidden, pruned and purged, and with git's packs.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use stepback_engine::prune::Rules;
use stepback_mirror::restore::restore;
use stepback_mirror::survey::MirrorSurvey;
use stepback_mirror::sync::MirrorSync;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectSource as _;
use stepback_model::record::{Annotation, OpStatus, Trigger};
use stepback_model::state::WorkspaceState;
use stepback_store::Mutation;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::CommitMark;
use stepback_store::prelude::*;
use stepback_testkit::TestWorkspace;
use stepback_testkit::skip::skip;
use stepback_testkit::tree::{self, Draw};

use crate::fixture::{MirroredStore, assert_same, open_archive};

/// Everything that was ever stored, whatever a sweep freed since.
type AllObjects = HashMap<(ObjectKind, Hash), Vec<u8>>;

fn note_objects(store: &EmbeddedStore, all: &mut AllObjects) {
    let mut found = Vec::new();
    store.for_each_object(&mut |object| found.push((object.kind, object.hash))).unwrap();
    for (kind, hash) in found {
        all.entry((kind, hash)).or_insert_with(|| store.read(kind, hash).unwrap());
    }
}

fn random_history(seed: u64) {
    let place = MirroredStore::new();
    let mut random = Draw::new(seed);
    let mut store = place.store();
    let mut sessions = vec![place.begin(&store, "/w0").1];
    let mut steps = Vec::new();
    let mut all = AllObjects::new();
    place.sync(&store).unwrap();
    for round in 0..60u64 {
        match random.below(12) {
            0 => sessions.push(place.begin(&store, &format!("/w{round}")).1),
            1..=5 => {
                let session = random.pick(&sessions).clone();
                let length = random.below(3000) * (1 + 40 * usize::from(random.once_in(5)));
                let text = random.bytes(length);
                steps.push(place.append(&store, &session, &text));
            }
            6 if !steps.is_empty() => {
                let annotation = Annotation { label: Some(format!("label {round}")), ..Default::default() };
                let step = random.pick(&steps).id;
                store.commit(None, &[Mutation::Annotate { step, annotation }]).unwrap();
            }
            7 if !steps.is_empty() => {
                let operation = place.sample.operation(sessions[0].workspace, OpStatus::Done);
                let by = random.once_in(3).then_some(operation.id);
                let steps = vec![random.pick(&steps).id];
                store
                    .commit(None, &[Mutation::AppendOp(operation), Mutation::SetHidden { steps, by }])
                    .unwrap();
            }
            8 if !steps.is_empty() => {
                // What a prune does: hides, purges, and sweeps what only purged steps need.
                let operation = place.sample.operation(sessions[0].workspace, OpStatus::Done);
                let step = random.pick(&steps).clone();
                let hide = Mutation::SetHidden { steps: vec![step.id], by: Some(operation.id) };
                let purge = Mutation::Purge { steps: vec![step.id] };
                store.commit(None, &[Mutation::AppendOp(operation), hide, purge]).unwrap();
                place.sync(&store).unwrap();
                note_objects(&store, &mut all);
                let engine = stepback_engine::Engine::new(Arc::new(place.store()), place.env.clone());
                engine.collect_garbage().unwrap();
            }
            9 if !steps.is_empty() => {
                let name = format!("ref{}", random.below(3));
                let expected = store.reference(&name).unwrap();
                let mutation = match expected.is_some() && random.once_in(3) {
                    true => Mutation::DropRef { name },
                    false => Mutation::SetRef { name, expected, value: random.pick(&steps).id },
                };
                store.commit(None, &[mutation]).unwrap();
            }
            10 => {
                drop(store);
                store = place.store();
            }
            _ => drop(place.sync(&store).unwrap()),
        }
        if random.once_in(3) {
            note_objects(&store, &mut all);
        }
    }
    place.sync(&store).unwrap();
    note_objects(&store, &mut all);
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!((report.missing, report.generation), (Vec::<String>::new(), 1), "seed {seed}");
    assert_same(&store, &copy);
    for ((kind, hash), bytes) in &all {
        assert_eq!(copy.read(*kind, *hash).unwrap(), *bytes, "seed {seed}: a freed object is gone");
    }
    let survey = MirrorSurvey::take(&place.archive(), true).unwrap();
    assert_eq!(survey.report.problems, Vec::<String>::new());
    for workspace in copy.workspaces().unwrap() {
        let hidden = |store: &EmbeddedStore| -> Vec<bool> {
            store.checkpoints(workspace.id).unwrap().iter().map(|step| step.hidden_by.is_some()).collect()
        };
        assert_eq!(hidden(&store), hidden(&copy));
        assert!(copy.checkpoints(workspace.id).unwrap().iter().all(|step| !step.purged), "seed {seed}");
    }
}

#[test]
fn random_histories_are_restored_with_everything_that_was_ever_mirrored() {
    for seed in 0..8 {
        random_history(seed);
    }
}

/// A checkpoint that was purged before there was a mirror stays purged; one that was purged later is whole again.
#[test]
fn what_was_freed_before_the_mirror_stays_freed() {
    let place = MirroredStore::new();
    let store = place.store();
    let (workspace, session) = place.begin(&store, "/w");
    let early = place.append(&store, &session, b"early");
    let late = place.append(&store, &session, b"late");
    place.append(&store, &session, b"stays");
    let purge = |step: stepback_model::ids::StepId| {
        let operation = place.sample.operation(workspace.id, OpStatus::Done);
        let hide = Mutation::SetHidden { steps: vec![step], by: Some(operation.id) };
        store
            .commit(None, &[Mutation::AppendOp(operation), hide, Mutation::Purge { steps: vec![step] }])
            .unwrap();
        let engine = stepback_engine::Engine::new(Arc::new(place.store()), place.env.clone());
        engine.collect_garbage().unwrap();
    };
    purge(early.id);
    place.sync(&store).unwrap();
    let mirrored = store.newest_link().unwrap().commit;
    EmbeddedStore::note_mirrored(&place.path("store"), Some(mirrored)).unwrap();
    purge(late.id);
    let report = place.sync(&store).unwrap();
    assert_eq!(report.new_generation, None, "the record keeps the commits of the prune");
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!((report.unpurged, report.missing), (1, Vec::<String>::new()));
    assert!(copy.step(early.id).unwrap().unwrap().purged);
    let late = copy.step(late.id).unwrap().unwrap();
    assert!(!late.purged && late.hidden_by.is_some());
    assert!(copy.contains(ObjectKind::State, late.step.state).unwrap());
}

/// A sweep while the mirror is behind removes entries of the record; the mirror notices, and misses only what was freed.
#[test]
fn a_sweep_before_the_sync_costs_only_what_it_freed() {
    let place = MirroredStore::new();
    let store = place.store();
    let (workspace, session) = place.begin(&store, "/w");
    place.sync(&store).unwrap();
    let gone = place.append(&store, &session, b"gone");
    let kept = place.append(&store, &session, b"kept");
    let operation = place.sample.operation(workspace.id, OpStatus::Done);
    let hide = Mutation::SetHidden { steps: vec![gone.id], by: Some(operation.id) };
    let purge = Mutation::Purge { steps: vec![gone.id] };
    store.commit(None, &[Mutation::AppendOp(operation), hide, purge]).unwrap();
    let engine = stepback_engine::Engine::new(Arc::new(place.store()), place.env.clone());
    engine.collect_garbage().unwrap();
    let mark: CommitMark = store.commit_seq().unwrap();
    assert!(mark.0 > 0);
    let report = place.sync(&store).unwrap();
    assert!(report.new_generation.is_some() && report.contradiction.is_none(), "{report:?}");
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!(report.missing, Vec::<String>::new());
    assert!(copy.step(gone.id).unwrap().unwrap().purged);
    assert!(copy.contains(ObjectKind::State, kept.state).unwrap());
}

fn git(dir: &Path, arguments: &[&str]) -> bool {
    Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", dir)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// A real workspace with a repository: its packs are in the vault, its blobs borrowed from them.
#[test]
fn a_workspace_with_git_is_restored_file_by_file() {
    let place = TestWorkspace::new();
    if !git(&place.root, &["init", "-q"]) {
        return skip("git");
    }
    for number in 0..4 {
        place.write("code", &format!("line {number}\n").repeat(300));
        assert!(git(&place.root, &["add", "."]) && git(&place.root, &["commit", "-qm", "more"]));
    }
    assert!(git(&place.root, &["gc", "-q"]));
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let checkpoint = |label: &str| {
        let annotation = Annotation { label: Some(label.into()), ..Default::default() };
        workspace.create_checkpoint(annotation, Trigger::Manual).unwrap().stored
    };
    checkpoint("one");
    place.write("code", "changed\n");
    place.write("dir/new", "new\n");
    let second = checkpoint("two");
    let expected = place.copy();
    let dir = place.store.local_dir().unwrap().to_path_buf();
    let vault: Vec<_> = fs::read_dir(dir.join("vault")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(vault.len() >= 2, "{vault:?}");
    let store = EmbeddedStore::open_existing(&dir).unwrap();
    let mirror = place.top().join("mirror");
    let archive = open_archive(&mirror, &*place.env);
    let report = MirrorSync::new(&store, archive, &*place.env).sync().unwrap();
    assert_eq!(report.vault_files, vault.len() as u64);
    let plan = workspace.plan_prune(Rules { now: true, keep_last: Some(1), ..Rules::default() }).unwrap();
    workspace.prune(plan).unwrap();
    let archive = open_archive(&mirror, &*place.env);
    MirrorSync::new(&store, archive, &*place.env).sync().unwrap();

    let copied: HashMap<_, _> =
        vault.iter().map(|path| (path.file_name().unwrap().to_owned(), fs::read(path).unwrap())).collect();
    drop((workspace, engine, store));
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_dir_all(place.path("dir")).unwrap();
    fs::write(place.path("code"), "poison").unwrap();
    let into = place.top().join("restored");
    let report =
        restore(&open_archive(&mirror, &*place.env), &into, None, &place.env, &AtomicU64::new(0)).unwrap();
    assert_eq!(report.missing, Vec::<String>::new());
    assert!(report.unpurged >= 1, "{report:?}");
    for (name, bytes) in copied {
        assert_eq!(fs::read(into.join("vault").join(name)).unwrap(), bytes);
    }
    let restored: Arc<dyn Store> = Arc::new(EmbeddedStore::open_existing(&into).unwrap());
    let engine = stepback_engine::Engine::new(restored, place.env.clone());
    let workspace = engine.open_known_workspace(&place.root).unwrap();
    let out = place.top().join("out");
    let state = WorkspaceState::load(workspace.store(), second.step.state).unwrap();
    workspace.materialize(&state, &out, true).unwrap();
    let differences = tree::differences(&expected, &tree::copy_of(&out, |_| false));
    assert!(differences.is_empty(), "{differences}");
}
