"""Export of recorded traces to any OpenTelemetry backend, as OTLP/HTTP with JSON.

``encoding`` makes OTLP spans of a query's log record, ``exporter`` posts them. On AWS the log writer exports
what it stores; elsewhere ``BackgroundExport`` does, behind a bounded queue, so that no query waits.
"""
