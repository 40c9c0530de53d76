//! Tests of messages, settings, claims and sessions.
