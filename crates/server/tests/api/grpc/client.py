"""Calls every method of the server with grpcio, which learns them by reflection, and compares the answers with HTTP.

Arguments: the address, the workspace, a session, a step, two checkpoints. The token is on standard input.
"""

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

address, workspace, session, number, checkpoint, other = sys.argv[1:]
token = sys.stdin.readline().strip()
metadata = [("authorization", "Bearer " + token)]
channel = grpc.insecure_channel(address)
database = ProtoReflectionDescriptorDatabase(channel)
pool = descriptor_pool.DescriptorPool(database)


def method(service, name):
    found = pool.FindServiceByName("stepback.v1." + service).methods_by_name[name]
    return found, message_factory.GetMessageClass(found.input_type), message_factory.GetMessageClass(found.output_type)


def call(service, name, fields):
    found, request, answer = method(service, name)
    path = f"/stepback.v1.{service}/{name}"
    kind = channel.unary_stream if found.server_streaming else channel.unary_unary
    send = kind(path, request_serializer=request.SerializeToString, response_deserializer=answer.FromString)
    return send(json_format.ParseDict(fields, request()), metadata=metadata, timeout=60)


def over_http(verb, path, body=None):
    request = urllib.request.Request(f"http://{address}/api/v1{path}", method=verb)
    request.add_header("Authorization", "Bearer " + token)
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read() or b"{}")


def matches(message, document, where):
    """Whether a message has everything that a document has. Fields that are empty in one can be absent from the other."""
    if message.DESCRIPTOR.name == "JsonDocument":
        assert json.loads(message.json) == document, where
        return
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in document.items():
        if name + "_json" in fields:
            text = getattr(message, name + "_json")
            given = json.loads(text) if text else None
            assert given == value, f"{where}.{name}: {given} {value}"
            continue
        field = fields[name]
        given = getattr(message, name)
        if value is None:
            assert not message.HasField(name), f"{where}.{name}"
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            assert set(given) == set(value), f"{where}.{name}"
            for key in value:
                matches(given[key], value[key], f"{where}.{name}.{key}") if isinstance(value[key], dict) else None
                assert isinstance(value[key], dict) or given[key] == value[key], f"{where}.{name}.{key}"
        elif isinstance(value, list):
            assert len(given) == len(value), f"{where}.{name}"
            for index, (one, expected) in enumerate(zip(given, value)):
                if isinstance(expected, dict):
                    matches(one, expected, f"{where}.{name}[{index}]")
                else:
                    assert one == expected, f"{where}.{name}[{index}]: {one} {expected}"
        elif isinstance(value, dict):
            assert message.HasField(name), f"{where}.{name}"
            matches(given, value, f"{where}.{name}")
        else:
            assert given == value, f"{where}.{name}: {given!r} {value!r}"
    for field, value in message.ListFields():
        name = field.name.removesuffix("_json") if field.name.endswith("_json") else field.name
        assert name in document, f"{where}.{name} is not in the document"


# The services and their methods, as the server describes them.
services = [name for name in database.get_services() if name.startswith("stepback.v1.")]
assert len(services) == 11, services
assert "grpc.health.v1.Health" in database.get_services()

at = {"session": session, "number": number}
step = f"/sessions/{session}/steps/{number}"
here = f"/workspaces/{workspace}"
reads = {
    "Workspaces/ListWorkspaces": ({}, "/workspaces"),
    "Workspaces/GetWorkspace": ({"workspace": workspace}, here),
    "Workspaces/ListChanges": ({"workspace": workspace, "limit": 3}, here + "/changes?limit=3"),
    "Workspaces/ListCommands": ({"workspace": workspace}, here + "/commands"),
    "Workspaces/ResolvePoint": ({"workspace": workspace, "point": "first"}, here + "/points/first"),
    "Workspaces/ListOperations": ({"workspace": workspace}, here + "/operations"),
    "Sessions/ListSessions": ({"counts": True}, "/sessions?counts=true"),
    "Sessions/GetSession": ({"session": session}, f"/sessions/{session}"),
    "Steps/ListSteps": ({"session": session, "oldest_first": True}, f"/sessions/{session}/steps?oldest_first=true"),
    "Steps/GetStep": (at, step),
    "Steps/NextStep": (at, step + "/next"),
    "Steps/PreviousStep": (at, step + "/previous"),
    "Timelines/GetTimeline": ({"session": session}, f"/sessions/{session}/timeline"),
    "Timelines/GetBranchLines": ({"session": session}, f"/sessions/{session}/lines"),
    "Timelines/GetTimelineMarks": ({"session": session}, f"/sessions/{session}/marks"),
    "States/GetState": (at, step + "/state"),
    "States/GetConversation": (at, step + "/state/conversation"),
    "States/GetMemory": (at, step + "/state/memory"),
    "States/GetTask": (at, step + "/state/task"),
    "States/GetEnvironment": (at, step + "/state/env"),
    "Checkpoints/ListCheckpoints": ({"workspace": workspace}, here + "/checkpoints"),
    "Checkpoints/GetCheckpoint": ({"checkpoint": checkpoint}, f"/checkpoints/{checkpoint}"),
    "Checkpoints/DiffWithPresent": ({"checkpoint": checkpoint, "text": True}, f"/checkpoints/{checkpoint}/diff?text=true"),
    "Checkpoints/DiffCheckpoints": (
        {"checkpoint": checkpoint, "other": other, "text": True},
        f"/checkpoints/{checkpoint}/diff/{other}?text=true",
    ),
    "Branches/ListBranches": ({"workspace": workspace}, here + "/branches"),
    "Branches/GetBranch": ({"workspace": workspace, "branch": "main"}, here + "/branches/main"),
    "Branches/CompareRuns": (
        {"a": session, "b": "branch:main", "workspace": workspace},
        f"/compare?a={session}&b=branch:main&workspace={workspace}",
    ),
    "Search/FindSteps": ({"failed": True}, "/steps?failed=true"),
    "Search/SearchSteps": ({"q": "wrong"}, "/search?q=wrong"),
}
for name, (fields, path) in reads.items():
    matches(call(*name.split("/"), fields), over_http("GET", path), name)

# A rewind, its undo and its redo.
plan = call("Plans", "PlanRewind", {"workspace": workspace, "point": "first", "everything": True})
matches(plan, over_http("GET", f"/rewind-plans/{plan.id}"), "plan")
matches(call("Plans", "GetRewindPlan", {"plan": plan.id}), over_http("GET", f"/rewind-plans/{plan.id}"), "shown plan")
assert len(plan.items) > 0
applied = call("Plans", "ApplyRewindPlan", {"plan": plan.id})
assert all(item.done for item in applied.items) and not applied.partial
undo = call("Plans", "PlanUndo", {"workspace": workspace, "operation": applied.operation.id})
assert call("Plans", "ApplyUndoPlan", {"plan": undo.id}).operation.kind == "undo"

# The bytes of a file, in pieces.
state = call("States", "GetState", at)
for file in state.items:
    if file.type == "file":
        content = b"".join(chunk.data for chunk in call("States", "ReadFile", dict(at, path=file.address)))
        assert len(content) == file.size, file

# Errors.
try:
    call("Workspaces", "ResolvePoint", {"workspace": workspace, "point": "nowhere"})
    raise AssertionError("there is no such point")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND
    status = rpc_status.from_call(error)
    assert status.message == error.details()
    problem = message_factory.GetMessageClass(pool.FindMessageTypeByName("stepback.v1.Problem"))()
    assert status.details[0].Unpack(problem), status
    assert problem.http_status == 404 and problem.code and problem.detail, problem
metadata, kept = [("authorization", "Bearer wrong")], metadata
try:
    call("Sessions", "ListSessions", {})
    raise AssertionError("the token is wrong")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
metadata = kept

# Live events: a checkpoint that is made now arrives, and the stream can be left.
events = call("Events", "FollowEvents", {})
first = next(events)
assert first.position > 0 and first.WhichOneof("kind") is None
made = call("Checkpoints", "CreateCheckpoint", {"workspace": workspace, "label": "from Python", "tags": ["x"]})
for event in events:
    if event.WhichOneof("kind") == "step" and event.step.id == made.id:
        assert event.step.label == "from Python" and event.position > first.position
        break
events.cancel()

health = health_pb2_grpc.HealthStub(channel)
assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
print(len(reads), "reads,", len(services), "services")
