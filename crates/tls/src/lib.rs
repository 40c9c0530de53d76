//! TLS for connections to controllers, managers and databases, by OpenSSL, with the rules of OVS.
//!
//! [`Tls`] holds key, certificates and trusted CA of the process. It reads their files again when they change, and
//! makes a [`Session`] over each connected byte stream. Both sides present certificates; a peer's must chain to the
//! CA, and its names are not compared. All calls are non-blocking if the streams are.
//!
//! Files are trusted no further than needed: only regular files up to a size are read, and an encrypted key is
//! refused instead of asking for its password. A session does not renegotiate and gives no tickets.
#![forbid(unsafe_code)]

mod context;
mod files;
pub mod fuzz;
mod protocols;
mod session;
#[cfg(test)]
mod tests;

pub use context::{Settings, Tls};
pub use protocols::{Protocols, UnknownProtocol};
pub use session::{Handshake, Session};
