//! JSON-RPC 1.0 in OVSDB's form (RFC 7047 section 4): both sides send requests over one stream, and only the
//! JSON itself separates the messages.
//!
//! [`Framer`] splits the stream into JSON texts within bounds; [`RpcMessage`] interprets each. An error of
//! either ends the session, because the start of the next message is unknown.

mod framer;
mod message;
#[cfg(test)]
mod tests;

pub use framer::{FrameError, Framer, FramerLimits};
pub use message::{MessageError, RpcMessage, TooLong};
