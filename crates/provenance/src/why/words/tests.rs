//! Tests of [`super`].

use super::*;

/// The runs of `text` with a change, as texts, if no word is rarer than another.
fn runs(change: &str, old: &str, text: &str) -> Vec<String> {
    let query = Query::new(change, old);
    let weights = Weights::new(&query, 1, &vec![1; query.decisive.len()]);
    let runs = query.shared_runs(text, &weights, 8);
    runs.iter().map(|run| text[run.text.clone()].to_owned()).collect()
}

#[test]
fn the_longest_run_comes_first_and_case_and_signs_between_words_do_not_count() {
    let text = "When you add a module, set TIMEOUT_MS: 86400 and\r\ncall \"collect.evil.example\" first.";
    let found = runs("const timeoutMs = timeout_ms = 86400; call(collect.evil.example)", "", text);
    assert_eq!(found, ["call \"collect.evil.example", "TIMEOUT_MS: 86400"]);
}

#[test]
fn common_words_are_no_evidence() {
    assert!(COMMON.len() > 150);
    assert!(runs("return import if else for the new file", "", "import the new file; return if").is_empty());
    assert!(runs("x = y + 12", "", "y = 12 x").is_empty(), "single characters and small numbers");
    assert!(runs("let total = 3;", "", "the total cost").is_empty(), "one short word");
    assert_eq!(runs("let subscription = 3;", "", "a subscription"), ["subscription"]);
    assert_eq!(runs("port: 8472", "", "listen on 8472 please"), ["8472"]);
}

#[test]
fn words_that_the_file_had_before_do_not_decide_unless_no_other_does() {
    let (old, new) = ("retries = 3 # attempts per request", "retries = 86400 # attempts per request");
    assert!(runs(new, old, "attempts per request, retries").is_empty());
    assert_eq!(runs(new, old, "set retries to 86400"), ["86400"]);
    assert_eq!(runs("attempts per request", old, "attempts per request"), ["attempts per request"]);
}

#[test]
fn rare_words_weigh_more() {
    let query = Query::new("configure frobnicator", "");
    let weights = Weights::new(&query, 100, &[90, 1]);
    assert!(weights.of(1) > 5.0 * weights.of(0));
    assert!(weights.is_rare(1) && !weights.is_rare(0));
    assert!(query.shared_runs("configure it", &weights, 8).is_empty(), "every text says so");
}

#[test]
fn unicode_words_and_scripts_without_spaces_match() {
    assert_eq!(runs("größe_überall = 1", "", "Die GRÖSSE? GRÖßE überall!"), ["GRÖßE überall"]);
    assert_eq!(runs("設定を変更する", "", "まず設定を変更する。"), ["設定を変更する"]);
    assert!(runs("🦀🦀🦀", "", "🦀🦀🦀").is_empty(), "there is no word");
    assert!(runs("", "", "anything").is_empty());
}

#[test]
fn repetitive_and_huge_texts_take_time_in_proportion() {
    let change = "alpha beta ".repeat(20_000);
    let text = "alpha beta ".repeat(500_000);
    let query = Query::new(&change, "");
    assert!(query.truncated);
    assert_eq!(query.decisive_count(), 2);
    let weights = Weights::new(&query, 1, &[1, 1]);
    let found = query.shared_runs(&text, &weights, 8);
    assert_eq!(found.len(), 1, "its words count once");
    assert_eq!(found[0].len(), MAX_QUERY_WORDS);
    let line = "x".repeat(10 << 20);
    assert!(query.shared_runs(&line, &weights, 8).is_empty());
    let bytes: String = (0..1 << 20).map(|at| char::from_u32(at % 0x250).unwrap_or('x')).collect();
    let query = Query::new(&bytes, &bytes);
    assert!(query.decisive_in(&bytes).len() <= query.decisive_count());
}

#[test]
fn the_quick_search_finds_what_the_slow_one_does() {
    let change = "Frobnicate the WIDGET größe 8472 x1 verylongwordthatgoesonandonandonandon zz";
    let query = Query::new(change, "");
    let texts = [change.to_owned(), change.to_uppercase(), change.replace("größe", "size"), "nothing".into()];
    for text in &texts {
        let mut slow: Vec<WordId> = Vec::new();
        for_each_word(text, &mut |_, folded| {
            let id = query.ids.get(folded).copied().filter(|id| query.decisive[*id as usize]);
            slow.extend(id.filter(|id| !slow.contains(id)));
            true
        });
        let mut quick = query.decisive_in(text);
        slow.sort_unstable();
        quick.sort_unstable();
        assert_eq!(quick, slow, "{text}");
    }
}

#[test]
fn a_json_line_has_the_words_of_its_strings() {
    let query = Query::new("frobnicate näive widget", "");
    let found = |json: &str| query.decisive_in_json(json).len();
    assert_eq!(found(r#"{"text":"do\nfrobnicate\twidget"}"#), 2);
    assert_eq!(found(r#"{"text":"n\u00e4ive"}"#), 1);
    assert_eq!(found(r#"{"text":"\u00e4 not JSON"#), 0);
    assert_eq!(found("\\"), 0);
}

#[test]
fn every_run_that_it_reports_stands_in_both() {
    let mut random = stepback_testkit_free_random(7);
    for _ in 0..300 {
        let sequence = |length: u32, random: &mut dyn FnMut() -> u32| {
            let words: Vec<String> = (0..length).map(|_| format!("word{}", random() % 5)).collect();
            words.join(" ")
        };
        let (change, text) = (sequence(12, &mut random), sequence(30, &mut random));
        let query = Query::new(&change, "");
        let weights = Weights::new(&query, 1, &vec![0; query.decisive.len()]);
        let longest = longest_shared(&change, &text);
        let found = query.maximal_runs(&text, &weights);
        assert_eq!(found.iter().map(Run::len).max().unwrap_or(0), longest, "{change} / {text}");
        for run in found {
            assert_eq!(&text[run.text.clone()], &change[run.change.clone()]);
        }
    }
}

fn stepback_testkit_free_random(seed: u32) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    }
}

fn longest_shared(a: &str, b: &str) -> usize {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split(' ').collect(), b.split(' ').collect());
    let length_at =
        |i: usize, j: usize| a[i..].iter().zip(&b[j..]).take_while(|(left, right)| left == right).count();
    (0..a.len())
        .flat_map(|i| (0..b.len()).map(move |j| (i, j)))
        .map(|(i, j)| length_at(i, j))
        .max()
        .unwrap_or(0)
}
