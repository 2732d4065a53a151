//! Traces for an OpenTelemetry collector.
