//! The graph of an answer in Graphviz's language.

use std::fmt::Write;

use stepback_api::why::{WhyDocument, WhyNodeDocument};
use stepback_model::clip;
use stepback_model::escape::safe;

/// The most characters of a label.
const MAX_LABEL_CHARS: usize = 80;

/// Renders an answer for `dot`. Untrusted sources are red; links that were inferred are dashed.
pub fn render(document: &WhyDocument) -> String {
    let mut out =
        String::from("digraph why {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for node in &document.nodes {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "  {} [label={}{}];", quote(&node.id), quote(&label(node)), style(node));
    }
    for edge in &document.edges {
        let style = if edge.basis == "inferred" { ", style=dashed" } else { "" };
        let _ = writeln!(
            out,
            "  {} -> {} [label={}{style}];",
            quote(&edge.from),
            quote(&edge.to),
            quote(&edge.relation)
        );
    }
    out.push_str("}\n");
    out
}

fn label(node: &WhyNodeDocument) -> String {
    let kind = match (&node.source, node.step) {
        (Some(source), Some(step)) => format!("{} ({}), #{step}", source.kind, source.trust),
        (Some(source), None) => format!("{} ({})", source.kind, source.trust),
        (None, Some(step)) => format!("{} #{step}", node.kind),
        (None, None) => node.kind.clone(),
    };
    format!("{kind}\n{}", safe(&clip::first(&node.title, MAX_LABEL_CHARS)))
}

fn style(node: &WhyNodeDocument) -> &'static str {
    match &node.source {
        Some(source) if source.untrusted => ", color=red, penwidth=2",
        Some(_) => ", color=gray40",
        None => "",
    }
}

/// A quoted text of Graphviz: quotes and backslashes are escaped, so that a name is never more than a name.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if stepback_model::escape::is_hidden(c) => {}
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use stepback_api::why::{WhyEdgeDocument, WhySourceDocument};

    use super::*;

    #[test]
    fn hostile_names_stay_names() {
        let node = WhyNodeDocument {
            id: "a\"]; b [URL=\"x".to_owned(),
            title: "\\\" \u{1b}[31m \u{202e} <b>x</b>\nnext".to_owned(),
            source: Some(WhySourceDocument { untrusted: true, ..WhySourceDocument::default() }),
            ..WhyNodeDocument::default()
        };
        let edge = WhyEdgeDocument { from: node.id.clone(), to: "b".into(), ..WhyEdgeDocument::default() };
        let text = render(&WhyDocument { nodes: vec![node], edges: vec![edge], ..WhyDocument::default() });
        assert!(text.contains(r#""a\"]; b [URL=\"x" [label="#), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
        assert_eq!(text.lines().count(), 6, "{text}");
    }
}
