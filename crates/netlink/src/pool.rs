//! A pool of sockets shared by threads.

use crate::error::Error;
use crate::namespace::Namespace;
use crate::socket::{DumpState, NlRequest, Protocol, Socket};
use flow::nlattr::AttrError;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Maximum idle sockets.
const IDLE_MAX: usize = 8;
/// Receive buffer of each, by the kernel's accounting.
const RECEIVE_BUFFER_BYTES: usize = 2 << 20;

/// Sockets of one network namespace.
#[derive(Debug)]
pub(crate) struct Pool {
    namespace: Namespace,
    protocol: Protocol,
    idle: Mutex<Vec<Socket>>,
}

impl Pool {
    pub(crate) fn new(namespace: Namespace, protocol: Protocol) -> Pool {
        Pool { namespace, protocol, idle: Mutex::new(Vec::new()) }
    }

    /// A socket for one thread. Return it by [`Pool::put`] once all replies are read; otherwise drop it.
    pub(crate) fn take(&self) -> Result<Socket, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(socket) => Ok(socket),
            None => self.make(RECEIVE_BUFFER_BYTES),
        }
    }

    pub(crate) fn put(&self, socket: Socket) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(socket);
        }
    }

    /// A new socket with a receive buffer of this many bytes.
    pub(crate) fn make(&self, receive_buffer_bytes: usize) -> Result<Socket, Error> {
        let open = || -> io::Result<Socket> { Socket::open_io(self.protocol, receive_buffer_bytes) };
        let what = format!("cannot open a socket of {:?} netlink", self.protocol);
        self.namespace.run(open).map_err(|source| Error::Io { what, source })
    }

    /// Begins a dump.
    pub(crate) fn dump(&self, request: &NlRequest) -> Result<Dump<'_>, Error> {
        let mut socket = self.take()?;
        let state = socket.start_dump(request)?;
        Ok(Dump { pool: self, socket: Some(socket), state })
    }
}

/// An active dump: holds one socket and its current datagram.
#[derive(Debug)]
pub(crate) struct Dump<'a> {
    pool: &'a Pool,
    /// Present until the end.
    socket: Option<Socket>,
    state: DumpState,
}

impl Dump<'_> {
    /// Whether the kernel has reported an inconsistent dump so far (`NLM_F_DUMP_INTR`).
    pub(crate) fn interrupted(&self) -> bool {
        self.state.interrupted()
    }

    /// The result of `read` for the next message's body; `None` at the end. An unreadable message does not end the
    /// dump.
    pub(crate) fn next<T>(
        &mut self,
        read: impl FnOnce(&[u8]) -> Result<T, AttrError>,
    ) -> Option<Result<T, Error>> {
        let body = self.state.next(self.socket.as_mut()?);
        let one = body.map(|body| {
            read(body?).map_err(|why| Error::Answer { asked: self.state.asked().to_owned(), why })
        });
        if one.is_none() || self.state.is_complete() {
            // A socket with a partial dump is unusable.
            let socket = self.socket.take();
            socket.filter(|_| self.state.is_complete()).into_iter().for_each(|s| self.pool.put(s));
        }
        one
    }
}
