//! JSON-RPC 1.0 as OVSDB uses it (RFC 7047 section 4): both sides send requests over one stream, and nothing but JSON
//! itself separates the messages.
//!
//! [`Framer`] cuts the stream into JSON texts within bounds; [`Message`] gives each its meaning. Errors of either end
//! the session: after garbage there is no telling where the next message begins.

mod framer;
mod message;
#[cfg(test)]
mod tests;

pub use framer::{FrameError, Framer, FramerLimits};
pub use message::{Message, MessageError, TooLong};
