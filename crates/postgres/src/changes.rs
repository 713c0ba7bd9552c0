//! Being told that somebody committed, without asking again and again.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::poll_fn;
use stepback_model::ids::{SessionId, WorkspaceId};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::PostgresStore;

/// The channel that commits are announced on.
const CHANNEL: &str = "stepback";
/// So many announcements wait for whoever reads them; more are dropped.
const WAITING: usize = 1024;
/// How long to wait before connecting again.
const AGAIN: Duration = Duration::from_secs(1);

/// What was announced: a hint that it is worth to look, never a promise that nothing else happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something was committed to a workspace.
    Committed {
        /// Which.
        workspace: WorkspaceId,
        /// Its newest step; 0 if the commit did not say.
        newest: u64,
    },
    /// The connection was lost for a while, and with it announcements.
    Missed,
}

impl PostgresStore {
    /// Announcements of commits by anybody, from now on. Ends when the receiver is dropped, or the store. Lossy: whoever reads
    /// too slowly misses some.
    pub fn changes(&self) -> mpsc::Receiver<Change> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let config = self.pool.config().clone();
        self.pool.handle().spawn(async move {
            let mut first = true;
            while !sender.is_closed() {
                if let Ok((client, mut connection)) = config.connect(NoTls).await {
                    let messages = sender.clone();
                    let listening = async {
                        if client.batch_execute(&format!("LISTEN {CHANNEL}")).await.is_err() {
                            return;
                        }
                        if !first {
                            let _ = sender.try_send(Change::Missed);
                        }
                        // The client must stay for as long as the connection is wanted.
                        sender.closed().await;
                    };
                    let moving = async {
                        loop {
                            match poll_fn(|context| connection.poll_message(context)).await {
                                Some(Ok(AsyncMessage::Notification(note))) if note.channel() == CHANNEL => {
                                    if let Some(change) = parse(note.payload()) {
                                        let _ = messages.try_send(change);
                                    }
                                }
                                Some(Ok(_)) => {}
                                Some(Err(_)) | None => return,
                            }
                        }
                    };
                    tokio::select! {
                        () = listening => {}
                        () = moving => {}
                    }
                    first = false;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        });
        receiver
    }
}

/// What announces a commit, to be sent along with its end: after it, so that no lock is held while it becomes durable.
pub(crate) fn notify(
    newest: impl Iterator<Item = (WorkspaceId, i64)>,
    added: impl Iterator<Item = (SessionId, WorkspaceId)>,
) -> String {
    let mut workspaces: HashMap<WorkspaceId, i64> = added.map(|(_, workspace)| (workspace, 0)).collect();
    workspaces.extend(newest);
    workspaces
        .iter()
        .map(|(workspace, newest)| format!("; NOTIFY {CHANNEL}, '{workspace} {newest}'"))
        .collect()
}

fn parse(payload: &str) -> Option<Change> {
    let (workspace, newest) = payload.split_once(' ')?;
    Some(Change::Committed { workspace: WorkspaceId::from_hex(workspace)?, newest: newest.parse().ok()? })
}
