//! The standard health service: whether the store answers and accepts commits, as the readiness probe says.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request as HttpRequest;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::operation::ApiCaller;
use crate::services::operations;
use crate::status::refusal;

/// How often a watched status is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Answers checks by asking the readiness probe.
#[derive(Clone)]
pub(crate) struct HealthChecks {
    caller: ApiCaller,
}

impl HealthChecks {
    pub(crate) fn new(caller: ApiCaller) -> Self {
        Self { caller }
    }

    async fn status(&self) -> ServingStatus {
        let Ok(request) = HttpRequest::get("/readyz").body(Body::empty()) else {
            return ServingStatus::Unknown;
        };
        match self.caller.send_request(request).await {
            Ok(_) => ServingStatus::Serving,
            Err(_) => ServingStatus::NotServing,
        }
    }
}

/// Whether there is a service of this name; the empty name is the server as a whole.
fn is_known(service: &str) -> bool {
    let of_operation = |rpc: &str| rpc.trim_start_matches('/').split('/').next() == Some(service);
    service.is_empty() || operations().iter().any(|operation| of_operation(operation.rpc))
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for HealthChecks {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match is_known(&service) {
            true => Ok(Response::new(response(self.status().await))),
            false => Err(refusal(
                Code::NotFound,
                "nothing",
                "there is no such service".into(),
                Some("the empty name stands for the whole server"),
            )),
        }
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        if !is_known(&request.into_inner().service) {
            // Unlike a check, it is not an error.
            let unknown = Ok(response(ServingStatus::ServiceUnknown));
            return Ok(Response::new(stream::once(async { unknown }).chain(stream::pending()).boxed()));
        }
        let checks = self.clone();
        let changes = stream::unfold((checks, None), |(checks, last)| async move {
            loop {
                if last.is_some() {
                    tokio::time::sleep(CHECK_INTERVAL).await;
                }
                let now = checks.status().await;
                if last != Some(now) {
                    return Some((Ok(response(now)), (checks, Some(now))));
                }
            }
        });
        Ok(Response::new(changes.boxed()))
    }
}
