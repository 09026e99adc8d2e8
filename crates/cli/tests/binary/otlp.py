"""Decode exported traces with the OpenTelemetry classes and print each span as a JSON line."""

import json
import sys

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def value_of(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(one) for one in value.array_value.values]
    return getattr(value, kind)


for name in sys.argv[1:]:
    with open(name, "rb") as file:
        request = ExportTraceServiceRequest.FromString(file.read())
    for resource in request.resource_spans:
        service = {pair.key: value_of(pair.value) for pair in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                print(json.dumps({
                    "service": service["service.name"],
                    "scope": scope.scope.name,
                    "trace": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": span.kind,
                    "took": span.end_time_unix_nano - span.start_time_unix_nano,
                    "start": span.start_time_unix_nano,
                    "status": span.status.code,
                    "attributes": {pair.key: value_of(pair.value) for pair in span.attributes},
                }))
