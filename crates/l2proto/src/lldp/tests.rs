//! Tests of frames and sessions.
