"""Runs a session again by means of gRPC alone.

Arguments: the address. The token is on standard input. Prints the final status of each branch.
"""

import json
import sys
import time

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(sys.argv[1])
metadata = [("authorization", "Bearer " + sys.stdin.readline().strip())]
pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))


def call(service, name, /, **fields):
    method = pool.FindServiceByName("stepback.v1." + service).methods_by_name[name]
    request = message_factory.GetMessageClass(method.input_type)
    answer = message_factory.GetMessageClass(method.output_type)
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    send = kind(
        f"/stepback.v1.{service}/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=answer.FromString,
    )
    return send(json_format.ParseDict(fields, request()), metadata=metadata, timeout=120)


def finish(branch):
    while (found := call("Branches", "FindBranch", branch=branch)).status in ("pending", "running"):
        time.sleep(0.05)
    return found


session = call("Sessions", "ListSessions").items[0]
at = {"session": session.id}
calls = call("Steps", "ListSteps", kind="tool-start", oldest_first=True, **at)
first = calls.items[0].number

begun = call("Replays", "StartRerun", branch="same", **at)
assert begun.name == "same", begun
same = finish("same")
print("same:", same.status)
again = json.loads(same.rerun_json)["session"]
compared = json.loads(call("Branches", "CompareRuns", a=session.id, b=again).json)
assert compared, compared

change = f"#{first}.input.content=two\n"
prepared = call("Replays", "PrepareBranch", name="with two", set=[change], **{"from": f"#{first}"}, **at)
assert prepared.status == "pending", prepared
assert json.loads(prepared.rerun_json)["changes"] == [change], prepared
executed = call("Replays", "ExecuteBranch", branch="with two", workspace=session.workspace)
assert executed.name == "with two", executed
changed = finish("with two")
print("with two:", changed.status)
step = {"session": changed.tip.session, "number": changed.tip.number}
print("made.txt:", b"".join(piece.data for piece in call("States", "ReadFile", path="made.txt", **step)).decode().strip())
try:
    call("Replays", "ExecuteBranch", branch="with two")
    raise AssertionError("it ran already")
except grpc.RpcError as error:
    print("again:", error.code().name)
try:
    call("Replays", "InterruptRerun", workspace=session.workspace, branch="same")
    raise AssertionError("it has ended")
except grpc.RpcError as error:
    print("interrupt:", error.code().name)
