//! The table of operations: each method of each service, and the operation of the HTTP API behind it.
//!
//! The comments in the `.proto` files name the same operations; `tests/contract` compares them.

use std::time::Duration;

use axum::Router;
use axum::routing::post_service;
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use crate::health::HealthChecks;
use crate::operation::{ApiCaller, RpcMethod};
use crate::v1::*;
use crate::{FILE_DESCRIPTOR_SET, events, streams};

/// Largest message of a request, in bytes: as much as the HTTP API accepts.
const MAX_REQUEST_BYTES: usize = 8 << 20;

/// Methods that need no token: health and the description of the API are not secret over HTTP either.
pub const PUBLIC_PATHS: [&str; 3] = [
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Implements the services. It does nothing but look up operations.
#[derive(Clone)]
struct ApiServices {
    caller: ApiCaller,
    /// How long a client may stop reading a stream.
    stall_timeout: Duration,
}

/// Implements a service: `Method function(Request) -> Answer = HTTP-METHOD "path"`, then those that are answered with a stream:
/// `Method function Stream(Request) -> Message = HTTP-METHOD "path" by FUNCTION`.
macro_rules! service {
    ($routes:ident: $name:literal, $module:ident::$trait:ident, $server:ident {
        $($rpc:literal $call:ident($request:ty) -> $answer:ty = $method:literal $path:literal;)*
        $(stream $stream_rpc:literal $stream_call:ident $stream_type:ident($stream_request:ty) -> $item:ty
            = $stream_method:literal $stream_path:literal by $open:path;)*
    }) => {
        mod $routes {
            use crate::operation::RpcMethod;

            pub(super) const OPERATIONS: &[RpcMethod] = &[
                $(RpcMethod { rpc: concat!("/stepback.v1.", $name, "/", $rpc), method: $method, path: $path },)*
                $(RpcMethod {
                    rpc: concat!("/stepback.v1.", $name, "/", $stream_rpc),
                    method: $stream_method,
                    path: $stream_path,
                },)*
            ];
        }

        #[tonic::async_trait]
        impl $module::$trait for ApiServices {
            $(async fn $call(&self, request: Request<$request>) -> Result<Response<$answer>, Status> {
                const OPERATION: RpcMethod =
                    RpcMethod { rpc: concat!("/stepback.v1.", $name, "/", $rpc), method: $method, path: $path };
                self.caller.call(&OPERATION, request.into_inner()).await
            })*
            $(
                type $stream_type = BoxStream<'static, Result<$item, Status>>;

                async fn $stream_call(
                    &self,
                    request: Request<$stream_request>,
                ) -> Result<Response<Self::$stream_type>, Status> {
                    const OPERATION: RpcMethod = RpcMethod {
                        rpc: concat!("/stepback.v1.", $name, "/", $stream_rpc),
                        method: $stream_method,
                        path: $stream_path,
                    };
                    let body = self.caller.open(&OPERATION, request.into_inner()).await?;
                    Ok(Response::new(streams::pump($open(body), self.stall_timeout)))
                }
            )*
        }

        fn $routes(router: Router, services: &ApiServices) -> Router {
            let server = $module::$server::new(services.clone()).max_decoding_message_size(MAX_REQUEST_BYTES);
            $routes::OPERATIONS
                .iter()
                .fold(router, |router, operation| router.route(operation.rpc, post_service(server.clone())))
        }
    };
}

service!(workspaces: "Workspaces", workspaces_server::Workspaces, WorkspacesServer {
    "ListWorkspaces" list_workspaces(ListWorkspacesRequest) -> WorkspacePage = "GET" "/workspaces";
    "GetWorkspace" get_workspace(GetWorkspaceRequest) -> Workspace = "GET" "/workspaces/{workspace}";
    "ListChanges" list_changes(ListChangesRequest) -> NumberedChangePage = "GET" "/workspaces/{workspace}/changes";
    "ListCommands" list_commands(ListCommandsRequest) -> CommandPage = "GET" "/workspaces/{workspace}/commands";
    "BlameFile" blame_file(BlameFileRequest) -> Blame = "GET" "/workspaces/{workspace}/blame";
    "ExplainOrigin" explain_origin(ExplainOriginRequest) -> Why = "GET" "/workspaces/{workspace}/why";
    "GetCost" get_cost(GetCostRequest) -> Cost = "GET" "/cost";
    "ResolvePoint" resolve_point(ResolvePointRequest) -> Step = "GET" "/workspaces/{workspace}/points/{point}";
    "ListOperations" list_operations(ListOperationsRequest) -> OperationPage = "GET" "/workspaces/{workspace}/operations";
    "GetDashboard" get_dashboard(GetDashboardRequest) -> Dashboard = "GET" "/dashboard";
});

service!(sessions: "Sessions", sessions_server::Sessions, SessionsServer {
    "ListSessions" list_sessions(ListSessionsRequest) -> SessionPage = "GET" "/sessions";
    "GetSession" get_session(GetSessionRequest) -> Session = "GET" "/sessions/{session}";
    stream "ExportSession" export_session ExportSessionStream(ExportSessionRequest) -> Chunk
        = "GET" "/sessions/{session}/export" by streams::chunks;
});

service!(steps: "Steps", steps_server::Steps, StepsServer {
    "ListSteps" list_steps(ListStepsRequest) -> StepPage = "GET" "/sessions/{session}/steps";
    "GetStep" get_step(GetStepRequest) -> StepDetail = "GET" "/sessions/{session}/steps/{number}";
    "NextStep" next_step(NextStepRequest) -> StepDetail = "GET" "/sessions/{session}/steps/{number}/next";
    "PreviousStep" previous_step(PreviousStepRequest) -> StepDetail = "GET" "/sessions/{session}/steps/{number}/previous";
});

service!(timelines: "Timelines", timelines_server::Timelines, TimelinesServer {
    "GetTimeline" get_timeline(GetTimelineRequest) -> Timeline = "GET" "/sessions/{session}/timeline";
    "GetBranchLines" get_branch_lines(GetBranchLinesRequest) -> BranchLines = "GET" "/sessions/{session}/lines";
    "GetTimelineMarks" get_timeline_marks(GetTimelineMarksRequest) -> TimelineMarks = "GET" "/sessions/{session}/marks";
    "GetProfile" get_profile(GetProfileRequest) -> Profile = "GET" "/sessions/{session}/profile";
    "ListAnomalies" list_anomalies(ListAnomaliesRequest) -> Anomalies = "GET" "/anomalies";
});

service!(states: "States", states_server::States, StatesServer {
    "GetState" get_state(GetStateRequest) -> State = "GET" "/sessions/{session}/steps/{number}/state";
    "GetConversation" get_conversation(GetConversationRequest) -> MessagePage
        = "GET" "/sessions/{session}/steps/{number}/state/conversation";
    "GetMemory" get_memory(GetMemoryRequest) -> JsonDocument = "GET" "/sessions/{session}/steps/{number}/state/memory";
    "GetTask" get_task(GetTaskRequest) -> JsonDocument = "GET" "/sessions/{session}/steps/{number}/state/task";
    "GetEnvironment" get_environment(GetEnvironmentRequest) -> JsonDocument
        = "GET" "/sessions/{session}/steps/{number}/state/env";
    stream "ReadFile" read_file ReadFileStream(ReadFileRequest) -> Chunk
        = "GET" "/sessions/{session}/steps/{number}/state/files/{path}" by streams::chunks;
});

service!(checkpoints: "Checkpoints", checkpoints_server::Checkpoints, CheckpointsServer {
    "ListCheckpoints" list_checkpoints(ListCheckpointsRequest) -> StepPage = "GET" "/workspaces/{workspace}/checkpoints";
    "CreateCheckpoint" create_checkpoint(CreateCheckpointRequest) -> CreatedCheckpoint
        = "POST" "/workspaces/{workspace}/checkpoints";
    "GetCheckpoint" get_checkpoint(GetCheckpointRequest) -> Step = "GET" "/checkpoints/{checkpoint}";
    "AnnotateCheckpoint" annotate_checkpoint(AnnotateCheckpointRequest) -> AnnotatedCheckpoint
        = "PATCH" "/checkpoints/{checkpoint}";
    "ReplaceAnnotation" replace_annotation(ReplaceAnnotationRequest) -> AnnotatedCheckpoint
        = "PUT" "/checkpoints/{checkpoint}";
    "DeleteCheckpoint" delete_checkpoint(DeleteCheckpointRequest) -> crate::v1::Operation = "DELETE" "/checkpoints/{checkpoint}";
    "DiffWithPresent" diff_with_present(DiffWithPresentRequest) -> Diff = "GET" "/checkpoints/{checkpoint}/diff";
    "DiffCheckpoints" diff_checkpoints(DiffCheckpointsRequest) -> Diff = "GET" "/checkpoints/{checkpoint}/diff/{other}";
});

service!(plans: "Plans", plans_server::Plans, PlansServer {
    "PlanRewind" plan_rewind(PlanRewindRequest) -> Plan = "POST" "/workspaces/{workspace}/rewind-plans";
    "GetRewindPlan" get_rewind_plan(GetRewindPlanRequest) -> Plan = "GET" "/rewind-plans/{plan}";
    "ApplyRewindPlan" apply_rewind_plan(ApplyRewindPlanRequest) -> AppliedPlan = "POST" "/rewind-plans/{plan}/apply";
    "PlanUndo" plan_undo(PlanUndoRequest) -> Plan = "POST" "/workspaces/{workspace}/undo-plans";
    "GetUndoPlan" get_undo_plan(GetUndoPlanRequest) -> Plan = "GET" "/undo-plans/{plan}";
    "ApplyUndoPlan" apply_undo_plan(ApplyUndoPlanRequest) -> AppliedPlan = "POST" "/undo-plans/{plan}/apply";
    "PlanRedo" plan_redo(PlanRedoRequest) -> Plan = "POST" "/workspaces/{workspace}/redo-plans";
    "GetRedoPlan" get_redo_plan(GetRedoPlanRequest) -> Plan = "GET" "/redo-plans/{plan}";
    "ApplyRedoPlan" apply_redo_plan(ApplyRedoPlanRequest) -> AppliedPlan = "POST" "/redo-plans/{plan}/apply";
    "PlanSwitch" plan_switch(PlanSwitchRequest) -> Plan = "POST" "/workspaces/{workspace}/branches/{branch}/switch-plans";
    "PlanMerge" plan_merge(PlanMergeRequest) -> Plan = "POST" "/workspaces/{workspace}/branches/{branch}/merge-plans";
    "GetSwitchPlan" get_switch_plan(GetSwitchPlanRequest) -> Plan = "GET" "/switch-plans/{plan}";
    "ApplySwitchPlan" apply_switch_plan(ApplySwitchPlanRequest) -> AppliedPlan = "POST" "/switch-plans/{plan}/apply";
});

service!(branches: "Branches", branches_server::Branches, BranchesServer {
    "ListBranches" list_branches(ListBranchesRequest) -> BranchPage = "GET" "/workspaces/{workspace}/branches";
    "CreateBranch" create_branch(CreateBranchRequest) -> Branch = "POST" "/workspaces/{workspace}/branches";
    "GetBranch" get_branch(GetBranchRequest) -> Branch = "GET" "/workspaces/{workspace}/branches/{branch}";
    "FindBranch" find_branch(FindBranchRequest) -> Branch = "GET" "/branches/{branch}";
    "UpdateBranch" update_branch(UpdateBranchRequest) -> Branch = "PATCH" "/workspaces/{workspace}/branches/{branch}";
    "DeleteBranch" delete_branch(DeleteBranchRequest) -> crate::v1::Operation
        = "DELETE" "/workspaces/{workspace}/branches/{branch}";
    "CompareRuns" compare_runs(CompareRunsRequest) -> JsonDocument = "GET" "/compare";
});

service!(replays: "Replays", replays_server::Replays, ReplaysServer {
    "StartRerun" start_rerun(StartRerunRequest) -> Branch = "POST" "/sessions/{session}/reruns";
    "PrepareBranch" prepare_branch(PrepareBranchRequest) -> Branch = "POST" "/branches";
    "ExecuteBranch" execute_branch(ExecuteBranchRequest) -> Branch = "POST" "/branches/{branch}/execute?workspace";
    "InterruptRerun" interrupt_rerun(InterruptRerunRequest) -> Empty
        = "POST" "/workspaces/{workspace}/branches/{branch}/interrupt";
    "ForkConversation" fork_conversation(ForkConversationRequest) -> ConversationFork = "POST" "/sessions/{session}/forks";
});

service!(search: "Search", search_server::Search, SearchServer {
    "FindSteps" find_steps(FindStepsRequest) -> FoundSteps = "GET" "/steps";
    "SearchSteps" search_steps(SearchStepsRequest) -> SearchResults = "GET" "/search";
});

service!(live_events: "Events", events_server::Events, EventsServer {
    stream "FollowEvents" follow_events FollowEventsStream(FollowEventsRequest) -> Event = "GET" "/events"
        by events::events;
});

/// All methods, with the operations of the HTTP API behind them.
pub fn operations() -> Vec<RpcMethod> {
    let all = [
        workspaces::OPERATIONS,
        sessions::OPERATIONS,
        steps::OPERATIONS,
        timelines::OPERATIONS,
        states::OPERATIONS,
        checkpoints::OPERATIONS,
        plans::OPERATIONS,
        branches::OPERATIONS,
        replays::OPERATIONS,
        search::OPERATIONS,
        live_events::OPERATIONS,
    ];
    all.concat()
}

/// Makes the routes of all services, with health and reflection. `api` has the HTTP API below `/api/v1` and the readiness
/// probe, without authentication, which the returned routes need too. A client that reads nothing of a stream for
/// `stall_timeout` loses it.
pub fn router(api: Router, stall_timeout: Duration) -> Router {
    let caller = ApiCaller::new(api);
    let services = ApiServices { caller: caller.clone(), stall_timeout };
    let parts = [
        workspaces,
        sessions,
        steps,
        timelines,
        states,
        checkpoints,
        plans,
        branches,
        replays,
        search,
        live_events,
    ];
    let router = parts.iter().fold(Router::new(), |router, add| add(router, &services));
    let health = tonic_health::pb::health_server::HealthServer::new(HealthChecks::new(caller));
    let router = router.route("/grpc.health.v1.Health/{method}", post_service(health));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Both descriptions were written by a compiler; a test reads them back.
    let (Ok(current), Ok(earlier)) = (reflection().build_v1(), reflection().build_v1alpha()) else {
        return router;
    };
    router
        .route("/grpc.reflection.v1.ServerReflection/{method}", post_service(current))
        .route("/grpc.reflection.v1alpha.ServerReflection/{method}", post_service(earlier))
}
