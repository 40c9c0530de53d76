//! A few sockets that threads take turns with.

use crate::error::Error;
use crate::namespace::Namespace;
use crate::socket::Socket;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Sockets kept while nobody uses them.
const IDLE_MAX: usize = 8;
/// Receive buffer of each, by the kernel's count.
const RECEIVE_BUFFER_BYTES: usize = 2 << 20;

/// Sockets of one network namespace.
#[derive(Debug)]
pub(super) struct Pool {
    namespace: Namespace,
    idle: Mutex<Vec<Socket>>,
}

impl Pool {
    pub(super) fn new(namespace: Namespace) -> Pool {
        Pool { namespace, idle: Mutex::new(Vec::new()) }
    }

    /// A socket for one thread. Give it back by [`Pool::put`] when all answers have been read; otherwise drop it.
    pub(super) fn take(&self) -> Result<Socket, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(socket) => Ok(socket),
            None => self.make(RECEIVE_BUFFER_BYTES),
        }
    }

    pub(super) fn put(&self, socket: Socket) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(socket);
        }
    }

    /// A new socket with a receive buffer of so many bytes.
    pub(super) fn make(&self, receive_buffer_bytes: usize) -> Result<Socket, Error> {
        let open = || -> io::Result<Socket> { Socket::open_io(receive_buffer_bytes) };
        let what = "cannot open a generic netlink socket";
        self.namespace.run(open).map_err(|source| Error::Io { what: what.into(), source })
    }
}
