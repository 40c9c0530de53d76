//! The kernel's connection tracking, through subsystem `ctnetlink` of netfilter: one table for all users of a
//! network namespace, datapaths and firewalls alike.

mod entry;
mod timeouts;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::pool::Pool;
use crate::socket::{Asked, MessageWriter, NlRequest, Protocol};
use dpif::{Connection, ConnectionSink, CtMatch, CtTuple};
use entry::{ATTRIBUTES, Name, attr};
use std::ops::ControlFlow;
pub(crate) use timeouts::fuzz_policy;

/// `NFNL_SUBSYS_CTNETLINK`.
const SUBSYSTEM: u8 = 1;

/// `IPCTNL_MSG_CT_*`.
mod message {
    pub(super) const GET: u8 = 1;
    pub(super) const DELETE: u8 = 2;
}

/// Description of a deletion.
const DELETE: &str = "delete a connection";
/// Maximum restarts of a list that was interrupted or lost a part.
const RESTARTS_MAX: u32 = 4;
/// Connections deleted together.
const DELETED_AT_ONCE: usize = 256;

/// The connection tracking of one network namespace: that of the creating thread, for all callers.
#[derive(Debug)]
pub struct Conntrack {
    pool: Pool,
}

impl Conntrack {
    /// The tracking of the calling thread's namespace. Sends no request yet.
    pub fn here() -> Conntrack {
        Conntrack { pool: Pool::new(Namespace::current(), Protocol::Netfilter) }
    }

    /// Passes all connections, or those of a zone, to `sink` as they arrive. Restarts a few times if the kernel
    /// reports an inconsistent list, or a part was lost.
    ///
    /// # Errors
    /// [`Error::NoConntrack`], or the kernel does not reply.
    pub fn list(&self, zone: Option<u16>, sink: &mut dyn ConnectionSink) -> Result<(), Error> {
        self.walk(zone, &mut |step| match step {
            None => {
                sink.restart();
                Ok(ControlFlow::Continue(()))
            }
            Some((connection, _)) => Ok(sink.connection(&connection)),
        })
    }

    /// Deletes the connection of that original tuple.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if there is none.
    pub fn delete(&self, zone: u16, tuple: &CtTuple) -> Result<(), Error> {
        let name = Name::of_tuple(zone, tuple).map_err(|why| Error::TooLong { asked: DELETE.into(), why })?;
        self.ask(deletion(&name)?)
    }

    /// Deletes all connections.
    ///
    /// # Errors
    /// [`Error::NoConntrack`], or the kernel does not reply.
    pub fn delete_all(&self) -> Result<(), Error> {
        let asked = Asked::again("delete all connections", ATTRIBUTES, 0);
        // A deletion without a tuple deletes all.
        self.ask(MessageWriter::netfilter([SUBSYSTEM, message::DELETE], 0, 0, asked).finish()?)
    }

    /// Deletes the selected connections.
    ///
    /// # Errors
    /// [`Error::NoConntrack`], or the kernel does not reply; some may be deleted by then.
    pub fn delete_matching(&self, which: &CtMatch) -> Result<(), Error> {
        // Deletes each by its identity: kernels before 6.8 would delete all instead of a zone's.
        let mut going = Vec::new();
        self.walk(which.zone, &mut |step| {
            if let Some((connection, name)) = step
                && which.matches(&connection)
            {
                going.push(deletion(&name)?);
                if going.len() == DELETED_AT_ONCE {
                    self.delete_each(&std::mem::take(&mut going))?;
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.delete_each(&going)
    }

    /// Reads the table, of a zone or all of it, until `each` stops it.
    fn walk(&self, zone: Option<u16>, each: &mut Each<'_>) -> Result<(), Error> {
        for restarts_left in (0..=RESTARTS_MAX).rev() {
            let mut request = MessageWriter::netfilter(
                [SUBSYSTEM, message::GET],
                0,
                0,
                Asked::again("list connections", ATTRIBUTES, 0),
            );
            if let Some(zone) = zone {
                request.attrs.be16(attr::ZONE, zone);
            }
            let mut dump = self.pool.dump(&request.finish()?)?;
            let mut lost = None;
            while let Some(one) = dump.next(entry::parse) {
                match one {
                    // Kernels before 6.8 report those of all zones.
                    Ok((connection, _)) if zone.is_some_and(|zone| zone != connection.zone) => {}
                    Ok((connection, name)) => {
                        if each(Some((connection, name)))?.is_break() {
                            return Ok(());
                        }
                    }
                    Err(e @ Error::Lost { .. }) => lost = Some(e),
                    Err(e) => return Err(known(e)),
                }
            }
            match lost {
                None if restarts_left == 0 || !dump.interrupted() => break,
                Some(e) if restarts_left == 0 => return Err(e),
                _ if each(None)?.is_break() => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    fn ask(&self, request: NlRequest) -> Result<(), Error> {
        let mut socket = self.pool.take()?;
        let done = socket.request(request, &mut |_| ());
        self.pool.put(socket);
        done.map_err(known)
    }

    /// Deletes connections, some of which may have ended meanwhile.
    fn delete_each(&self, deletions: &[NlRequest]) -> Result<(), Error> {
        let mut socket = self.pool.take()?;
        let results = socket.transact(deletions, &mut |_, _| ());
        self.pool.put(socket);
        results.into_iter().find(|r| r.as_ref().is_err_and(|e| !e.is_not_found())).unwrap_or(Ok(()))
    }
}

/// Receives a connection and its identity, or nothing to discard the list so far.
type Each<'a> = dyn FnMut(Option<(Connection, Name)>) -> Result<ControlFlow<()>, Error> + 'a;

/// The request that deletes a connection.
fn deletion(name: &Name) -> Result<NlRequest, Error> {
    let asked = Asked::again(DELETE, ATTRIBUTES, 0);
    let mut request = MessageWriter::netfilter([SUBSYSTEM, message::DELETE], 0, name.address_family, asked);
    name.write(&mut request.attrs);
    request.finish()
}

/// Translates netfilter's error for a missing subsystem: requests of ours are not invalid otherwise.
fn known(e: Error) -> Error {
    if e.errno() == Some(libc::EINVAL) { Error::NoConntrack } else { e }
}

/// Reads the bytes after a netlink header as a connection, for fuzzing.
pub(crate) fn fuzz_connection(body: &[u8]) -> Option<Connection> {
    let (connection, name) = entry::parse(body).ok()?;
    // Its identity can be written again.
    let _written = deletion(&name).ok()?;
    let again =
        Name::of_tuple(connection.zone, &connection.orig).ok().and_then(|name| entry::tuple_of(&name));
    assert_eq!(again, Some(connection.orig));
    Some(connection)
}
