//! The dependencies of each belief, drawn as a tree below it.

use stepback_api::reasoning::BoardItemDocument;

use super::board::{BoardRow, describe_link};
use super::pager::RowStyle;

/// The greatest depth that is drawn; deeper items have a row of their own.
const MAX_DEPTH: usize = 4;
/// The most rows below one belief. An item that several beliefs depend on is drawn below each of them.
const MOST: usize = 40;

/// Returns rows for everything that a belief depends on, recursively. `all` are the beliefs of the board.
pub fn dependency_rows(belief: &BoardItemDocument, beliefs: &[&BoardItemDocument]) -> Vec<BoardRow> {
    let mut rows = Vec::new();
    add_dependency_rows(belief, beliefs, "", &mut vec![&belief.id], &mut rows);
    if rows.len() > MOST {
        rows.truncate(MOST);
        let text = "      … and more".to_owned();
        rows.push(BoardRow { text, style: RowStyle::Quiet, ..BoardRow::default() });
    }
    rows
}

fn add_dependency_rows<'m>(
    belief: &'m BoardItemDocument,
    beliefs: &[&'m BoardItemDocument],
    indent: &str,
    path: &mut Vec<&'m String>,
    rows: &mut Vec<BoardRow>,
) {
    for (index, link) in belief.links.iter().enumerate() {
        if rows.len() > MOST {
            return;
        }
        let (branch, child_indent) = match index + 1 == belief.links.len() {
            true => ("└─", "   "),
            false => ("├─", "│  "),
        };
        let target = beliefs.iter().find(|target| target.id == link.to);
        let confidence =
            target.and_then(|target| target.confidence).map(|confidence| format!(" [{confidence:.2}]"));
        let text = target.map(|target| format!(" {}", target.text));
        let label =
            format!("{}{}{}", describe_link(link), confidence.unwrap_or_default(), text.unwrap_or_default());
        rows.push(BoardRow {
            text: format!("      {indent}{branch} {label}"),
            style: RowStyle::Quiet,
            item: Some(link.to.clone()),
            step: target.and_then(|target| target.origin.step),
            full_text: label,
            ..BoardRow::default()
        });
        // A board has no cycles; if a document has one, it is not followed.
        if let Some(target) = target.filter(|target| path.len() < MAX_DEPTH && !path.contains(&&target.id)) {
            path.push(&target.id);
            add_dependency_rows(target, beliefs, &format!("{indent}{child_indent}"), path, rows);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use stepback_api::reasoning::BoardLinkDocument;

    use super::*;

    fn belief(id: &str, on: &[&str]) -> BoardItemDocument {
        let link = |to: &&str| BoardLinkDocument {
            to: (*to).into(),
            how: "supported-by".into(),
            ..BoardLinkDocument::default()
        };
        BoardItemDocument {
            id: id.into(),
            text: format!("what {id} says"),
            confidence: Some(0.5),
            links: on.iter().map(link).collect(),
            ..BoardItemDocument::default()
        }
    }

    #[test]
    fn what_a_belief_rests_on_is_drawn_down_to_its_roots() {
        let all =
            [belief("B1", &["B2", "B4"]), belief("B2", &["B3"]), belief("B3", &[]), belief("B4", &["H1"])];
        let all: Vec<&BoardItemDocument> = all.iter().collect();
        let drawn: Vec<String> = dependency_rows(all[0], &all).into_iter().map(|row| row.text).collect();
        assert_eq!(
            drawn,
            [
                "      ├─ supported by B2 [0.50] what B2 says",
                "      │  └─ supported by B3 [0.50] what B3 says",
                "      └─ supported by B4 [0.50] what B4 says",
                "         └─ supported by H1",
            ]
        );
    }

    #[test]
    fn circles_and_crowds_end() {
        let ids: Vec<String> = (0..60).map(|index| format!("B{index}")).collect();
        let on: Vec<&str> = ids.iter().map(String::as_str).collect();
        let all: Vec<BoardItemDocument> = ids.iter().map(|id| belief(id, &on)).collect();
        let all: Vec<&BoardItemDocument> = all.iter().collect();
        let rows = dependency_rows(all[0], &all);
        assert_eq!(rows.len(), MOST + 1);
        assert!(rows[MOST].text.contains("and more"));
    }
}
