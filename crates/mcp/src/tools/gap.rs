//! Gaps (what the agent does not know yet) and notes (what is worth remembering).

use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::{Criticality, GapKind};

use super::{ADDITIVE, Tool, change_board, edit_schema, enum_names, require_known};
use crate::schema::{bounded_number, object, string, string_array, string_enum};

pub(super) fn gap_tool() -> Tool {
    Tool {
        name: "gap",
        title: "Gaps",
        description: "Add an open question (add), record its answer (fill), drop it if it no longer matters (drop), or reopen it (reopen).",
        input: object(
            &[
                ("do", string_enum("What to do", &["add", "fill", "drop", "reopen"])),
                ("gap", string("fill, drop, reopen: which one, such as G1")),
                ("text", string("add: the question; fill: the answer; drop: why")),
                (
                    "kind",
                    string_enum(
                        "add: what is missing (default fact)",
                        &enum_names(GapKind::ALL, GapKind::as_str),
                    ),
                ),
                (
                    "criticality",
                    string_enum(
                        "add: how much depends on it (default medium)",
                        &enum_names(Criticality::ALL, Criticality::as_str),
                    ),
                ),
                ("blocks", string_array("add: items that it blocks")),
                ("after", string_array("add: gaps that must be filled first")),
                ("strategy", string("add: how it could be filled")),
                ("minutes", bounded_number("add: estimated minutes", 0.0, 1e6)),
            ],
            &["do"],
        ),
        output: edit_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            let mutation = match args.require_text("do")? {
                "add" => BoardMutation::AddGap {
                    question: args.require_text("text")?.to_owned(),
                    kind: require_known(GapKind::parse(args.text("kind").unwrap_or("fact")), "kind")?,
                    criticality: require_known(
                        Criticality::parse(args.text("criticality").unwrap_or("medium")),
                        "criticality",
                    )?,
                    blocks: args.item_ids("blocks")?,
                    after: args.item_ids("after")?,
                    strategy: args.owned_text("strategy"),
                    minutes: args.number("minutes"),
                },
                "fill" => BoardMutation::FillGap {
                    gap: args.required_item("gap")?,
                    answer: args.require_text("text")?.to_owned(),
                },
                "drop" => BoardMutation::DropGap {
                    gap: args.required_item("gap")?,
                    reason: args.require_text("text")?.to_owned(),
                },
                _ => BoardMutation::ReopenGap { gap: args.required_item("gap")? },
            };
            change_board(context, &mutation)
        },
    }
}

pub(super) fn note_tool() -> Tool {
    Tool {
        name: "note",
        title: "Notes",
        description: "Write down something worth remembering after a compaction.",
        input: object(
            &[
                ("text", string("What")),
                ("about", string_array("Items it is about, such as H1")),
                ("tags", string_array("Tags")),
            ],
            &["text"],
        ),
        output: edit_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            change_board(
                context,
                &BoardMutation::AddNote {
                    text: args.require_text("text")?.to_owned(),
                    about: args.item_ids("about")?,
                    tags: args.texts("tags"),
                },
            )
        },
    }
}
