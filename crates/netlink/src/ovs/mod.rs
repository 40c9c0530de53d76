//! The families of the `openvswitch` module: typed requests and replies, one file per family.
//!
//! The interface index of its local port (`dp_ifindex`) identifies a datapath in its network namespace. Every call
//! waits for the kernel's reply, which comes within the system call.

mod ct_limit;
mod datapath;
mod flow;
mod meter;
mod monitor;
mod operate;
mod packet;
mod vport;

pub use datapath::{DpInfo, DpMegaflowStats, DpName, DpNew, DpSet, DpStats, features};
pub use flow::{
    FlowDel, FlowDump, FlowGet, FlowMode, FlowName, FlowParts, FlowPut, FlowReply, ufid_bytes, ufid_of_bytes,
};
pub use meter::{MeterFeatures, MeterReply};
pub use monitor::{VportEvent, VportMonitor};
pub use operate::{Reply, Request};
pub use packet::{Execute, RawUpcall, RecvError, UpcallBuffer, UpcallCmd, UpcallSocket};
pub use vport::{TunnelOptions, VportInfo, VportKind, VportNew, VportSet, VportStats, VportUpcallStats};

use crate::error::Error;
use crate::genl::{self, Family};
use crate::namespace::Namespace;
use crate::pool::Pool;
use crate::socket::{Asked, MessageWriter, NlRequest, Protocol, Socket};
use ::flow::nlattr::{AttrError, Attrs};

/// Bytes of `struct ovs_header`: the datapath.
const OVS_HEADER_BYTES: usize = 4;
/// Bytes of the generic header and the module's.
const BODY_HEAD_BYTES: usize = crate::message::GENERIC_BYTES + OVS_HEADER_BYTES;
/// Maximum bytes of a reply with a datapath, a port, a meter or a flow's counters.
const SMALL_REPLY_BYTES: usize = 4096;

/// The families, with the numbers of the running kernel.
#[derive(Debug)]
struct Families {
    datapath: Family,
    vport: Family,
    flow: Family,
    packet: Family,
    meter: Option<Family>,
    ct_limit: Option<Family>,
}

/// The `openvswitch` module of one network namespace: that of the opening thread, for all callers. Holds a few
/// sockets for concurrent requests.
#[derive(Debug)]
pub struct Ovs {
    families: Families,
    pool: Pool,
}

impl Ovs {
    /// Finds the families of the module (the kernel loads it if possible).
    ///
    /// # Errors
    /// [`Error::NoModule`], or no socket is available.
    pub fn open() -> Result<Ovs, Error> {
        let mut socket = Socket::open()?;
        let mut find = |name: &str| genl::family(&mut socket, name);
        let optional = |found: Result<Family, Error>| match found {
            Err(e) if e.is_no_module() => Ok(None),
            other => other.map(Some),
        };
        let families = Families {
            datapath: find("ovs_datapath")?,
            vport: find("ovs_vport")?,
            flow: find("ovs_flow")?,
            packet: find("ovs_packet")?,
            meter: optional(find("ovs_meter"))?,
            ct_limit: optional(find("ovs_ct_limit"))?,
        };
        let pool = Pool::new(Namespace::current(), Protocol::Generic);
        pool.put(socket);
        Ok(Ovs { families, pool })
    }

    /// Whether the kernel has meters (Linux 4.15).
    pub fn has_meters(&self) -> bool {
        self.families.meter.is_some()
    }

    /// Whether the kernel has connection limits (Linux 4.18).
    pub fn has_ct_limits(&self) -> bool {
        self.families.ct_limit.is_some()
    }

    /// One request; `read` converts the last reply's attributes and datapath. `None`: there was no reply.
    fn ask<T>(
        &self,
        request: NlRequest,
        read: impl Fn(u32, Attrs<'_>) -> Result<T, AttrError>,
    ) -> Result<Option<T>, Error> {
        let asked = request.asked().to_owned();
        let mut socket = self.pool.take()?;
        let mut found = None;
        let done = socket
            .request(request, &mut |body| found = Some(open_body(body).and_then(|(dp, a)| read(dp, a))));
        self.pool.put(socket);
        done?;
        found.transpose().map_err(|why| Error::Answer { asked, why })
    }

    /// One request that must have a reply; `read` converts it.
    fn ask_for<T>(
        &self,
        request: NlRequest,
        read: impl Fn(u32, Attrs<'_>) -> Result<T, AttrError>,
    ) -> Result<T, Error> {
        let asked = request.asked().to_owned();
        self.ask(request, read)?.ok_or(Error::Unanswered { asked })
    }

    /// Dumps all objects.
    fn dump<T>(
        &self,
        request: &NlRequest,
        read: impl Fn(u32, Attrs<'_>) -> Result<T, AttrError>,
    ) -> Result<Vec<T>, Error> {
        let mut dump = self.pool.dump(request)?;
        let mut all = Ok(Vec::new());
        while let Some(one) = dump.next(|body| open_body(body).and_then(|(dp, a)| read(dp, a))) {
            // Read to the end all the same, to reuse the socket.
            all = all.and_then(|mut all| one.map(|one| all.push(one)).map(|()| all));
        }
        all
    }
}

/// Begins a request of one of the families.
fn begin(family: &Family, command: u8, flags: u16, dp_ifindex: u32, asked: Asked) -> MessageWriter {
    MessageWriter::new(family.id, [command, family.version], flags, &dp_ifindex.to_ne_bytes(), asked)
}

/// Datapath and attributes of a message's body.
fn open_body(body: &[u8]) -> Result<(u32, Attrs<'_>), AttrError> {
    let head: &[u8; BODY_HEAD_BYTES] = body.first_chunk().ok_or(AttrError::Cut { at_bytes: body.len() })?;
    let dp_ifindex = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    Ok((dp_ifindex, Attrs::parse(&body[BODY_HEAD_BYTES..])?))
}

/// Rejects impossible interface names: with a zero byte, or too long.
fn check_name(asked: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > 15 || name.bytes().any(|b| b == 0) {
        let why = format!("\"{}\" is no interface name: 1 to 15 bytes are", name.escape_debug());
        return Err(Error::Invalid { asked: asked.to_owned(), why });
    }
    Ok(())
}

/// 64-bit numbers at the start of a structure.
fn u64s<const N: usize>(content: &[u8], kind: u16) -> Result<[u64; N], AttrError> {
    let words = content.as_chunks::<8>().0;
    let words: &[[u8; 8]; N] =
        words.first_chunk().ok_or(AttrError::Size { kind, has_bytes: content.len() })?;
    Ok(words.map(u64::from_ne_bytes))
}

/// Reads the bytes after a netlink header as a flow, for fuzzing.
pub(crate) fn fuzz_flow(body: &[u8]) -> Option<FlowReply> {
    open_body(body).and_then(|(dp, attrs)| FlowReply::parse(dp, attrs)).ok()
}

/// Reads the bytes after a netlink header as one of several objects, for fuzzing.
pub(crate) fn fuzz_messages(which: u8, body: &[u8]) {
    let Ok((dp, attrs)) = open_body(body) else { return };
    match which {
        0 => drop(DpInfo::parse(dp, attrs)),
        1 => drop(monitor::event(body)),
        2 => drop((MeterReply::parse(dp, attrs), MeterFeatures::parse(dp, attrs))),
        _ => drop(ct_limit::parse_limits(dp, attrs)),
    }
}
