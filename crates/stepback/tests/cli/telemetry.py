"""An agent at work, told by the real OpenTelemetry SDK: argv is the protocol, then the name of the session.

Everything else comes from the environment, as it does for any service. Ends with 1 if an exporter complains.
"""

import json
import logging
import sys

protocol, session = sys.argv[1:3]

complaints = []


class Complaints(logging.Handler):
    def emit(self, record):
        complaints.append(record.getMessage())


logging.getLogger("opentelemetry").addHandler(Complaints(logging.WARNING))

from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if protocol == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

traces = TracerProvider()
traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
logs = LoggerProvider()
logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
tracer = traces.get_tracer("weather")
logger = logs.get_logger("weather")


def text(role, content):
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def asks(call, city):
    arguments = {"city": city}
    part = {"type": "tool_call", "id": call, "name": "get_weather", "arguments": arguments}
    return {"role": "assistant", "parts": [part], "finish_reason": "tool_call"}


def gave(call, response):
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call, "response": response}]}


def chat(asked, said):
    with tracer.start_as_current_span("chat small", kind=trace.SpanKind.CLIENT) as span:
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("gen_ai.provider.name", "acme")
        span.set_attribute("gen_ai.request.model", "small")
        span.set_attribute("gen_ai.conversation.id", session)
        span.set_attribute("gen_ai.input.messages", json.dumps(asked))
        span.set_attribute("gen_ai.output.messages", json.dumps([said]))
        span.set_attribute("gen_ai.usage.input_tokens", 100)
        span.set_attribute("gen_ai.usage.output_tokens", 20)
        span.set_attribute("gen_ai.response.finish_reasons", ["stop"])


def tool(call, city, result):
    with tracer.start_as_current_span("execute_tool get_weather", record_exception=True) as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", "get_weather")
        span.set_attribute("gen_ai.tool.call.id", call)
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps({"city": city}))
        if result is None:
            raise LookupError(f"no such city: {city}")
        span.set_attribute("gen_ai.tool.call.result", result)


with tracer.start_as_current_span("invoke_agent weather") as agent:
    agent.set_attribute("gen_ai.operation.name", "invoke_agent")
    agent.set_attribute("gen_ai.agent.name", "weather")
    agent.set_attribute("gen_ai.conversation.id", session)
    said = [text("system", "You know the weather."), text("user", "Weather in Parris?")]
    chat(said, asks("call_a", "Parris"))
    said.append(asks("call_a", "Parris"))
    try:
        tool("call_a", "Parris", None)
    except LookupError as error:
        said.append(gave("call_a", str(error)))
        logger.emit(body="the city was misspelled", severity_number=SeverityNumber.ERROR)
    chat(said, asks("call_b", "Paris"))
    said.append(asks("call_b", "Paris"))
    tool("call_b", "Paris", "sunny, 21 C")
    said.append(gave("call_b", "sunny, 21 C"))
    chat(said, text("assistant", "It is sunny in Paris, 21 C."))

# Spans first: a log record without a session of its own is placed by its trace.
traces.shutdown()
logs.shutdown()
for complaint in complaints:
    print(complaint, file=sys.stderr)
sys.exit(1 if complaints else 0)
