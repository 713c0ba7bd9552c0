//! A client of the gRPC API.

use std::time::Duration;

use stepback_grpc::v1::*;
use tonic::codegen::InterceptedService;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::support::TestServer;

/// A connection with the token, and the runtime that it needs.
pub struct Connection {
    runtime: tokio::runtime::Runtime,
    pub channel: Authorized,
}

pub type Authorized = InterceptedService<Channel, Token>;

/// Adds a token to each call.
#[derive(Clone)]
pub struct Token(pub Option<String>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

impl Connection {
    pub fn new(server: &TestServer) -> Self {
        Self::with_token(server, Some(server.server.token().as_str().to_owned()))
    }

    pub fn with_token(server: &TestServer, token: Option<String>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let endpoint =
            Endpoint::from_shared(server.server.url()).unwrap().connect_timeout(Duration::from_secs(10));
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self { runtime, channel: InterceptedService::new(channel, Token(token)) }
    }

    /// Waits for a call.
    pub fn wait<F: Future>(&self, call: F) -> F::Output {
        let limited =
            async { tokio::time::timeout(Duration::from_secs(60), call).await.expect("an answer in time") };
        self.runtime.block_on(limited)
    }

    pub fn workspaces(&self) -> workspaces_client::WorkspacesClient<Authorized> {
        workspaces_client::WorkspacesClient::new(self.channel.clone())
    }

    pub fn sessions(&self) -> sessions_client::SessionsClient<Authorized> {
        sessions_client::SessionsClient::new(self.channel.clone())
    }

    pub fn steps(&self) -> steps_client::StepsClient<Authorized> {
        steps_client::StepsClient::new(self.channel.clone())
    }

    pub fn timelines(&self) -> timelines_client::TimelinesClient<Authorized> {
        timelines_client::TimelinesClient::new(self.channel.clone())
    }

    pub fn states(&self) -> states_client::StatesClient<Authorized> {
        states_client::StatesClient::new(self.channel.clone())
    }

    pub fn checkpoints(&self) -> checkpoints_client::CheckpointsClient<Authorized> {
        checkpoints_client::CheckpointsClient::new(self.channel.clone())
    }

    pub fn plans(&self) -> plans_client::PlansClient<Authorized> {
        plans_client::PlansClient::new(self.channel.clone())
    }

    pub fn branches(&self) -> branches_client::BranchesClient<Authorized> {
        branches_client::BranchesClient::new(self.channel.clone())
    }

    pub fn replays(&self) -> replays_client::ReplaysClient<Authorized> {
        replays_client::ReplaysClient::new(self.channel.clone())
    }

    pub fn search(&self) -> search_client::SearchClient<Authorized> {
        search_client::SearchClient::new(self.channel.clone())
    }

    pub fn events(&self) -> events_client::EventsClient<Authorized> {
        events_client::EventsClient::new(self.channel.clone())
    }
}
