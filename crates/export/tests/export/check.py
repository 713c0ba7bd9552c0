"""Reads an export as a program that knows nothing of stepback: FORMAT FILE. Prints facts about it as JSON, or fails."""

import base64
import json
import sys

import jsonschema_rs
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

OBJECT, STRING, ARRAY = {"type": "object"}, {"type": "string"}, {"type": "array"}
COUNT = {"type": "integer", "minimum": 0}


def closed(required, optional=None):
    """An object with these fields and no others."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def list_of(item, **more):
    return {"type": "array", "items": item, **more}


# Written from the published description of ATIF (Harbor's RFC 0001), version 1.7: every object is closed except "extra".
ATIF_METRICS = closed({}, {
    "prompt_tokens": COUNT, "completion_tokens": COUNT, "cached_tokens": COUNT,
    "cost_usd": {"type": "number", "minimum": 0}, "extra": OBJECT,
})
ATIF_STEP = closed(
    {"step_id": {"type": "integer", "minimum": 1}, "source": {"enum": ["system", "user", "agent"]}, "message": STRING},
    {
        "timestamp": {"type": "string", "format": "date-time"},
        "model_name": STRING, "reasoning_content": STRING, "metrics": ATIF_METRICS, "extra": OBJECT,
        "llm_call_count": COUNT,
        "tool_calls": list_of(closed(
            {"tool_call_id": STRING, "function_name": STRING, "arguments": OBJECT}, {"extra": OBJECT})),
        "observation": closed({"results": list_of(closed(
            {"source_call_id": STRING, "content": STRING}, {"extra": OBJECT}))}),
    },
)
ATIF_AGENT = closed({"name": STRING, "version": STRING}, {"model_name": STRING, "extra": OBJECT})
ATIF_WORKER = closed(
    {"schema_version": {"const": "ATIF-v1.7"}, "trajectory_id": STRING, "agent": ATIF_AGENT,
     "steps": list_of(ATIF_STEP, minItems=1)},
)
ATIF = closed(
    {"schema_version": {"const": "ATIF-v1.7"}, "session_id": STRING, "agent": ATIF_AGENT,
     "steps": list_of(ATIF_STEP, minItems=1)},
    {
        "notes": STRING, "extra": OBJECT, "subagent_trajectories": list_of(ATIF_WORKER),
        "final_metrics": closed({}, {
            "total_prompt_tokens": COUNT, "total_completion_tokens": COUNT, "total_cached_tokens": COUNT,
            "total_cost_usd": {"type": "number", "minimum": 0}, "total_steps": COUNT, "extra": OBJECT}),
    },
)

# Written from the published description of Agent Trace 0.1.0.
CONTRIBUTOR = closed({"type": {"enum": ["human", "ai", "mixed", "unknown"]}}, {"model_id": {"type": "string", "maxLength": 250}})
LINE = {"type": "integer", "minimum": 1}
AGENT_TRACE = closed(
    {
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "id": {"type": "string", "format": "uuid"},
        "timestamp": {"type": "string", "format": "date-time"},
        "files": list_of(closed({
            "path": STRING,
            "conversations": list_of(closed(
                {"ranges": list_of(closed(
                    {"start_line": LINE, "end_line": LINE}, {"content_hash": STRING, "contributor": CONTRIBUTOR}), minItems=1)},
                {"url": {"type": "string", "format": "uri"}, "contributor": CONTRIBUTOR,
                 "related": list_of(closed({"type": STRING, "url": {"type": "string", "format": "uri"}}))})),
        })),
    },
    {
        "vcs": closed({"type": {"enum": ["git", "jj", "hg", "svn"]}, "revision": STRING}),
        "tool": closed({}, {"name": STRING, "version": STRING}),
        "metadata": OBJECT,
    },
)

# Written from the published description of HAR 1.2. Names of our own begin with an underscore, as it asks.
TIME = {"type": "string", "format": "date-time"}
PAIR = {"type": "object", "properties": {"name": STRING, "value": STRING}, "required": ["name", "value"]}
MESSAGE = {"httpVersion": STRING, "cookies": ARRAY, "headers": list_of(PAIR),
           "headersSize": {"type": "integer", "minimum": -1}, "bodySize": {"type": "integer", "minimum": -1}}
DURATION = {"type": "number", "minimum": 0}


def archive_object(required, optional=None):
    value = closed(required, optional)
    return {**value, "patternProperties": {"^_": {}, "^comment$": STRING}}


HAR = closed({"log": archive_object({
    "version": {"const": "1.2"}, "creator": archive_object({"name": STRING, "version": STRING}),
    "entries": list_of(archive_object({
        "startedDateTime": TIME, "time": DURATION,
        "request": archive_object(
            {"method": STRING, "url": {"type": "string", "format": "uri"}, "queryString": list_of(PAIR), **MESSAGE},
            {"postData": archive_object({"mimeType": STRING, "text": STRING})}),
        "response": archive_object({
            "status": COUNT, "statusText": STRING, "redirectURL": STRING,
            "content": archive_object({"size": COUNT, "mimeType": STRING}, {"text": STRING}), **MESSAGE}),
        "cache": OBJECT,
        "timings": archive_object({"send": DURATION, "wait": DURATION, "receive": DURATION}),
    }, {"pageref": STRING})),
}, {"pages": list_of(archive_object({
    "startedDateTime": TIME, "id": STRING, "title": STRING,
    "pageTimings": closed({}, {"onContentLoad": {"type": "number"}, "onLoad": {"type": "number"}})}))})})


def validate(schema, document):
    validator = jsonschema_rs.validator_for({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema},
                                            validate_formats=True)
    errors = [f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}" for error in validator.iter_errors(document)]
    assert not errors, "\n".join(errors[:20])


def check_trajectory(trajectory):
    """What the description asks for beside the shape."""
    for number, step in enumerate(trajectory["steps"], 1):
        assert step["step_id"] == number, step
        calls = {call["tool_call_id"] for call in step.get("tool_calls", [])}
        assert len(calls) == len(step.get("tool_calls", [])), "a call twice in one step"
        for result in step.get("observation", {}).get("results", []):
            assert result["source_call_id"] in calls, result
        if step["source"] != "agent":
            assert not {"model_name", "reasoning_content", "tool_calls", "metrics"} & step.keys(), step
        if step.get("llm_call_count") == 0:
            assert not {"reasoning_content", "metrics"} & step.keys(), step
        metrics = step.get("metrics", {})
        assert metrics.get("cached_tokens", 0) <= metrics.get("prompt_tokens", 0)


def read_atif(document):
    validate(ATIF, document)
    workers = document.get("subagent_trajectories", [])
    for trajectory in [document, *workers]:
        check_trajectory(trajectory)
    ids = [worker["trajectory_id"] for worker in workers]
    assert len(ids) == len(set(ids))
    assert document["final_metrics"]["total_steps"] == len(document["steps"])
    return {"sources": [step["source"] for step in document["steps"]], "workers": len(workers)}


def read_agent_trace(document):
    validate(AGENT_TRACE, document)
    ranges = {}
    for file in document["files"]:
        for conversation in file["conversations"]:
            for entry in conversation["ranges"]:
                assert entry["start_line"] <= entry["end_line"]
                ranges.setdefault(file["path"], []).append([entry["start_line"], entry["end_line"]])
    return {"ranges": ranges}


def read_har(document):
    validate(HAR, document)
    entries = document["log"]["entries"]
    for entry in entries:
        timings = entry["timings"]
        assert abs(sum(timings.values()) - entry["time"]) < 1
    return {"urls": [entry["request"]["url"] for entry in entries]}


def read_otlp(document):
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                # OTLP writes ids in hex where protobuf's own JSON has base64.
                for holder in [span, *span.get("links", [])]:
                    for name in ("traceId", "spanId", "parentSpanId"):
                        if name in holder:
                            holder[name] = base64.b64encode(bytes.fromhex(holder[name])).decode()
    request = json_format.ParseDict(document, ExportTraceServiceRequest(), ignore_unknown_fields=False)
    spans = [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans), "a span id twice"
    assert all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in spans)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans), "a span that ends before it begins"
    roots = [span for span in spans if not span.parent_span_id]
    assert len(roots) == 1 and all(span.parent_span_id in ids for span in spans if span.parent_span_id)
    # The protobuf encoding has the same content.
    assert ExportTraceServiceRequest.FromString(request.SerializeToString()) == request
    operation = lambda span: next((a.value.string_value for a in span.attributes if a.key == "gen_ai.operation.name"), "")
    return {"names": [span.name for span in spans], "operations": [operation(span) for span in spans]}


READERS = {"atif": read_atif, "agent-trace": read_agent_trace, "har": read_har, "otlp": read_otlp}

if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as file:
        print(json.dumps(READERS[sys.argv[1]](json.load(file))))
