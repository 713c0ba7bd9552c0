//! The numbered list of changes, with the author of each.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use stepback_engine::authorship::{Attribution, Author};
use stepback_engine::changes::NumberedChange;
use stepback_engine::path_filter::PathFilter;
use stepback_model::time::Timestamp;
use utoipa::{IntoParams, ToSchema};

use super::points::resolved_within;
use crate::documents::files::ChangeDocument;
use crate::extract::{Json, Path, QueryString, relative};
use crate::pagination::{self, Page, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Filters for changes.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Only those after this point.
    pub since: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those of this path and what is below it; a glob.
    pub path: Option<String>,
    /// Also those that were taken back, or that a new list leaves out.
    #[serde(default)]
    pub all: bool,
}

/// A call that made a change, or may have made it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AuthorDocument {
    /// The id of the session.
    pub session: String,
    /// The id of the step at which the call began.
    pub call_step: String,
    /// The name of the tool.
    pub tool: Option<String>,
    /// The id of the step of the prompt that the agent was working on.
    pub prompt_step: Option<String>,
}

impl AuthorDocument {
    fn of(author: &Author) -> Self {
        Self {
            session: author.session.to_string(),
            call_step: author.step.to_string(),
            tool: author.tool.clone(),
            prompt_step: author.prompt.map(|prompt| prompt.to_string()),
        }
    }
}

/// A change with its number.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct NumberedDocument {
    /// The number to pass to a rewind.
    pub number: u64,
    /// The change.
    #[serde(flatten)]
    pub change: ChangeDocument,
    /// When a scan first found it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The id of the step that first found it; none if no step has yet.
    pub step: Option<String>,
    /// The number of that step.
    pub step_number: Option<u64>,
    /// Whether a rewind took it back.
    pub taken_back: bool,
    /// The author: the user if it is empty, one of these calls if there are several.
    pub authors: Vec<AuthorDocument>,
}

impl NumberedDocument {
    fn of(numbered: &NumberedChange) -> Self {
        let authors = match &numbered.who {
            Attribution::Unreported => Vec::new(),
            Attribution::Call(author) => vec![AuthorDocument::of(author)],
            Attribution::OneOf(authors) => authors.iter().map(AuthorDocument::of).collect(),
        };
        Self {
            number: numbered.number as u64,
            change: ChangeDocument::of(&numbered.change),
            at: numbered.at,
            step: numbered.step.map(|(id, _)| id.to_string()),
            step_number: numbered.step.map(|(_, number)| number),
            taken_back: numbered.taken_back,
            authors,
        }
    }
}

/// Lists the changes on the current branch of a workspace, newest first.
#[utoipa::path(get, path = "/workspaces/{workspace}/changes", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace"), ChangesQuery, Paging),
    responses((status = 200, body = Page<NumberedDocument>), (status = "default", body = Problem)))]
pub async fn list(
    State(work): State<AppState>,
    Path(id): Path<String>,
    QueryString(wanted): QueryString<ChangesQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<NumberedDocument>>, Problem> {
    let limit = paging.limit()?;
    work.run(move |engine| {
        let workspace = state::workspace(engine, &id)?;
        let about = ("changes", workspace.record.id.to_string(), format!("{wanted:?}"));
        let before = paging.position(&about)?;
        let paths: Vec<String> = wanted.path.iter().cloned().collect();
        paths.iter().try_for_each(|path| relative(path.trim_end_matches('/')).map(drop))?;
        let filter = PathFilter::new(&paths)?;
        let session = wanted.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
        let since = wanted
            .since
            .as_ref()
            .map(|point| resolved_within(&workspace, point, session.as_ref()))
            .transpose()?;
        let since = since.map(|stored| workspace.nearest_checkpoint(&stored)).transpose()?;
        let cleared = workspace.session.info.cleared.unwrap_or(0);
        // Keeps a concurrent prune from freeing what is being read.
        let _lock = workspace.lock_shared()?;
        let mut listed = workspace.numbered_changes(since.as_ref())?;
        listed.retain(|numbered| {
            before.is_none_or(|before| (numbered.number as u64) < before)
                && filter.matches(&numbered.change.path)
                && session.as_ref().is_none_or(|session| numbered.who.is_session(session.id))
                && (wanted.all || numbered.is_open(cleared))
        });
        listed.reverse();
        listed.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
        let number = |numbered: &NumberedChange| numbered.number as u64;
        Ok(Json(pagination::page(listed, limit, &about, number, NumberedDocument::of)))
    })
    .await
}
