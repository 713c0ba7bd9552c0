//! Gaps (what the agent does not know yet) and notes (what is worth remembering).

use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::{Criticality, GapKind};

use super::{ADDS, Tool, change_board, edit_schema, parsed, words};
use crate::schema::{number, object, text, texts, word};

pub(super) fn gap() -> Tool {
    Tool {
        name: "gap",
        title: "Gaps",
        description: "Add an open question (add), record its answer (fill), drop it if it no longer matters (drop), or reopen it (reopen).",
        input: object(
            &[
                ("do", word("What to do", &["add", "fill", "drop", "reopen"])),
                ("gap", text("fill, drop, reopen: which one, such as G1")),
                ("text", text("add: the question; fill: the answer; drop: why")),
                ("kind", word("add: what is missing (default fact)", &words(GapKind::ALL, GapKind::as_str))),
                (
                    "criticality",
                    word(
                        "add: how much depends on it (default medium)",
                        &words(Criticality::ALL, Criticality::as_str),
                    ),
                ),
                ("blocks", texts("add: items that it blocks")),
                ("after", texts("add: gaps that must be filled first")),
                ("strategy", text("add: how it could be filled")),
                ("minutes", number("add: estimated minutes", 0.0, 1e6)),
            ],
            &["do"],
        ),
        output: edit_schema(),
        hints: ADDS,
        slow: false,
        makes: true,
        run: |ground, args| {
            let mutation = match args.need("do")? {
                "add" => BoardMutation::AddGap {
                    question: args.need("text")?.to_owned(),
                    kind: parsed(GapKind::parse(args.text("kind").unwrap_or("fact")), "kind")?,
                    criticality: parsed(
                        Criticality::parse(args.text("criticality").unwrap_or("medium")),
                        "criticality",
                    )?,
                    blocks: args.names("blocks")?,
                    after: args.names("after")?,
                    strategy: args.owned("strategy"),
                    minutes: args.number("minutes"),
                },
                "fill" => {
                    BoardMutation::FillGap { gap: args.item("gap")?, answer: args.need("text")?.to_owned() }
                }
                "drop" => {
                    BoardMutation::DropGap { gap: args.item("gap")?, reason: args.need("text")?.to_owned() }
                }
                _ => BoardMutation::ReopenGap { gap: args.item("gap")? },
            };
            change_board(ground, &mutation)
        },
    }
}

pub(super) fn note() -> Tool {
    Tool {
        name: "note",
        title: "Notes",
        description: "Write down something worth remembering after a compaction.",
        input: object(
            &[
                ("text", text("What")),
                ("about", texts("Items it is about, such as H1")),
                ("tags", texts("Tags")),
            ],
            &["text"],
        ),
        output: edit_schema(),
        hints: ADDS,
        slow: false,
        makes: true,
        run: |ground, args| {
            change_board(
                ground,
                &BoardMutation::AddNote {
                    text: args.need("text")?.to_owned(),
                    about: args.names("about")?,
                    tags: args.texts("tags"),
                },
            )
        },
    }
}
