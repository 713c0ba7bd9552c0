//! Chains that were changed in every way, and what is said about them.

use stepback_model::hash::{Hash, ObjectKind};

use super::*;

/// A chain as a store would write it: the session of each step, in order of numbers.
fn recorded(sessions: &[u8]) -> (Vec<ChainEntry>, Vec<ChainHead>) {
    let mut heads: HashMap<SessionId, ChainHead> = HashMap::new();
    let entries = sessions.iter().zip(1..).map(|(session, number)| {
        let session = SessionId::from_bytes([*session; 16]);
        let head = heads.entry(session).or_insert(ChainHead { session, linked: 0, head: None });
        let digest = digest(number);
        head.linked += 1;
        head.head = Some(head.head.unwrap_or(StepLink::START).next(digest));
        ChainEntry { session, number, digest: Some(digest), link: head.head }
    });
    let entries = entries.collect();
    (entries, heads.into_values().collect())
}

fn digest(content: u64) -> Hash {
    Hash::of(ObjectKind::Blob, &content.to_le_bytes())
}

fn verdict(entries: &[ChainEntry], heads: &[ChainHead]) -> Vec<String> {
    let mut verifier = ChainVerifier::new(heads.to_vec());
    entries.iter().for_each(|entry| verifier.add(*entry));
    let report = verifier.finish(heads.to_vec());
    report
        .breaks
        .iter()
        .map(|found| found.to_string().replace("01010101", "A").replace("02020202", "B"))
        .collect()
}

/// What is said after `change` to ten steps of one session.
fn after(change: impl FnOnce(&mut Vec<ChainEntry>, &mut Vec<ChainHead>)) -> Vec<String> {
    let (mut entries, mut heads) = recorded(&[1; 10]);
    change(&mut entries, &mut heads);
    verdict(&entries, &heads)
}

#[test]
fn an_untouched_chain_is_whole() {
    let (entries, heads) = recorded(&[1, 2, 2, 1, 1, 2]);
    assert_eq!(verdict(&entries, &heads), [""; 0]);
    assert_eq!(verdict(&[], &[]), [""; 0]);
}

#[test]
fn steps_from_before_links_are_not_a_break() {
    let (mut entries, heads) = recorded(&[1, 1, 1]);
    for entry in &mut entries {
        entry.number += 2;
    }
    let old = |number| ChainEntry { number, link: None, ..entries[0] };
    let all: Vec<_> = [old(1), old(2)].into_iter().chain(entries.iter().copied()).collect();
    assert_eq!(verdict(&all, &heads), [""; 0]);
}

#[test]
fn altered_steps_are_named() {
    let change = |places: &[usize]| {
        after(|entries, _| places.iter().for_each(|place| entries[*place].digest = Some(digest(99))))
    };
    assert_eq!(change(&[0]), ["step #1 was altered (session A)"]);
    assert_eq!(change(&[4]), ["step #5 was altered (session A)"]);
    assert_eq!(change(&[9]), ["step #10 was altered (session A)"]);
    assert_eq!(change(&[4, 5]), ["step #5 was altered (session A)", "step #6 was altered (session A)"]);
    assert_eq!(after(|entries, _| entries[3].digest = None), ["step #4 was altered (session A)"]);
}

#[test]
fn removed_steps_are_named() {
    assert_eq!(after(|entries, _| drop(entries.drain(..1))), ["step #1 was removed (session A)"]);
    assert_eq!(after(|entries, _| drop(entries.drain(4..5))), ["step #5 was removed (session A)"]);
    assert_eq!(after(|entries, _| drop(entries.drain(4..7))), ["steps #5 to #7 were removed (session A)"]);
    assert_eq!(after(|entries, _| entries.truncate(9)), ["1 step was removed after #9 (session A)"]);
    assert_eq!(after(|entries, _| entries.clear()), ["10 steps were removed after #0 (session A)"]);
}

#[test]
fn a_removed_step_belongs_to_the_session_that_lacks_it() {
    let (mut entries, heads) = recorded(&[1, 2, 1, 2, 1, 2]);
    // #4 is of B; between its neighbours there is only one of A.
    entries.remove(3);
    assert_eq!(verdict(&entries, &heads), ["step #4 was removed (session B)"]);
    // The newest of A leaves a gap, too.
    let (mut entries, heads) = recorded(&[1, 2, 1, 2]);
    entries.remove(2);
    assert_eq!(verdict(&entries, &heads), ["step #3 was removed (session A)"]);
    // A step of A was altered, and one of B removed right before it.
    let (mut entries, heads) = recorded(&[1, 2, 1, 2]);
    entries[2].digest = Some(digest(99));
    entries.remove(1);
    assert_eq!(
        verdict(&entries, &heads),
        ["step #3 was altered (session A)", "step #2 was removed (session B)"]
    );
}

#[test]
fn a_removal_with_closed_gap_is_noticed() {
    let said = after(|entries, _| {
        entries.remove(4);
        entries[4..].iter_mut().for_each(|entry| entry.number -= 1);
    });
    assert_eq!(said, ["step #5 was altered (session A)", "1 step was removed after #9 (session A)"]);
}

#[test]
fn inserted_steps_are_named() {
    let forged = |entries: &[ChainEntry], place: usize, link| {
        let mut forged = entries.to_vec();
        let digest = Some(digest(99));
        forged.insert(
            place,
            ChainEntry { digest, link, number: place as u64 + 1, session: entries[0].session },
        );
        forged[place + 1..].iter_mut().for_each(|entry| entry.number += 1);
        forged
    };
    let (entries, heads) = recorded(&[1; 10]);
    let made_up = Some(StepLink::START.next(digest(7)));
    let computed = entries[3].link.map(|link| link.next(digest(99)));
    for link in [None, made_up, computed] {
        assert_eq!(
            verdict(&forged(&entries, 4, link), &heads),
            ["step #5 was inserted (session A)"],
            "{link:?}"
        );
    }
    let at_end = entries[9].link.map(|link| link.next(digest(99)));
    assert_eq!(verdict(&forged(&entries, 10, at_end), &heads), ["step #11 was inserted (session A)"]);
    assert_eq!(verdict(&forged(&entries, 10, None), &heads), ["step #11 was inserted (session A)"]);
    assert_eq!(verdict(&forged(&entries, 10, made_up), &heads)[0], "step #11 was altered (session A)");
}

#[test]
fn a_session_that_was_never_recorded_is_noticed() {
    let (mut entries, heads) = recorded(&[1, 1]);
    entries.push(ChainEntry { session: SessionId::from_bytes([2; 16]), number: 3, digest: None, link: None });
    assert_eq!(verdict(&entries, &heads), ["step #3 was inserted (session B)"]);
    let (entries, heads) = recorded(&[1, 2, 2]);
    let heads: Vec<_> = heads.into_iter().filter(|head| head.session == entries[0].session).collect();
    assert_eq!(verdict(&entries, &heads), ["2 steps were inserted after #0 (session B)"]);
}

#[test]
fn numbers_that_no_store_assigns_are_noticed() {
    let (mut entries, heads) = recorded(&[1, 1]);
    entries.insert(0, ChainEntry { number: 0, link: None, ..entries[0] });
    assert_eq!(verdict(&entries, &heads), ["step #0 was inserted (session A)"]);
}

#[test]
fn steps_in_another_order_are_named() {
    let said = after(|entries, _| {
        entries.swap(4, 5);
        (entries[4].number, entries[5].number) = (5, 6);
    });
    assert_eq!(said, ["step #5 was reordered (session A)"]);
}

#[test]
fn a_head_that_was_changed_is_noticed() {
    assert_eq!(after(|_, heads| heads[0].head = None), ["the chain does not end at its head (session A)"]);
    assert_eq!(after(|_, heads| heads[0].linked = 9)[0], "step #10 was inserted (session A)");
    assert_eq!(after(|_, heads| heads.clear())[0], "10 steps were inserted after #0 (session A)");
    // Every link was computed again, but not the head.
    let (_, heads) = recorded(&[1; 3]);
    let (mut forged, _) = recorded(&[1; 3]);
    let mut link = StepLink::START;
    for entry in &mut forged {
        link = link.next(digest(99));
        (entry.digest, entry.link) = (Some(digest(99)), Some(link));
    }
    assert_eq!(verdict(&forged, &heads), ["the chain does not end at its head (session A)"]);
}

#[test]
fn steps_that_were_committed_meanwhile_are_no_break() {
    let (entries, later) = recorded(&[1, 2, 1]);
    let (_, before) = recorded(&[1]);
    let mut verifier = ChainVerifier::new(before);
    entries.iter().for_each(|entry| verifier.add(*entry));
    assert_eq!(verifier.finish(later).breaks, []);
}

#[test]
fn a_long_broken_chain_is_judged_in_parts() {
    let (mut entries, heads) = recorded(&[1; 500]);
    for place in [10, 200, 480] {
        entries[place].digest = Some(digest(9999));
    }
    let expected = [11, 201, 481].map(|step| format!("step #{step} was altered (session A)"));
    assert_eq!(verdict(&entries, &heads), expected);
}
