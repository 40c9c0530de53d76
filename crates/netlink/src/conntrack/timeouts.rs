//! Timeout policies, through subsystem `cttimeout` of netfilter (linux/netfilter/nfnetlink_cttimeout.h).
//!
//! The kernel's policies are for one protocol and IP version each. A policy here is one of each, named as in Open
//! vSwitch ([`TimeoutNames::ByProtocol`]). Numbers are in network byte order.

use super::Conntrack;
use crate::error::Error;
use crate::socket::{Asked, MessageWriter, NlRequest, flag};
use dpif::{TimeoutAttr, TimeoutId, TimeoutNames, TimeoutPolicy};
use flow::nlattr::{AttrError, Attrs};
use std::collections::BTreeMap;

/// `NFNL_SUBSYS_CTNETLINK_TIMEOUT`.
const SUBSYSTEM: u8 = 8;

/// `IPCTNL_MSG_TIMEOUT_*`.
mod message {
    pub(super) const NEW: u8 = 0;
    pub(super) const GET: u8 = 1;
    pub(super) const DELETE: u8 = 2;
}

/// `CTA_TIMEOUT_*`.
mod attr {
    pub(super) const NAME: u16 = 1;
    pub(super) const L3PROTO: u16 = 2;
    pub(super) const L4PROTO: u16 = 3;
    pub(super) const DATA: u16 = 4;
}

/// Names of `CTA_TIMEOUT_*`, by number.
const ATTRIBUTES: &[&str] = &[
    "CTA_TIMEOUT_UNSPEC",
    "CTA_TIMEOUT_NAME",
    "CTA_TIMEOUT_L3PROTO",
    "CTA_TIMEOUT_L4PROTO",
    "CTA_TIMEOUT_DATA",
    "CTA_TIMEOUT_USE",
];

/// Start of the names.
const PREFIX: &str = "ovs_tp_";
/// Room for the kernel's copy of a request in its reply.
const REPLY_BYTES: usize = 0;

/// A timeout of the kernel: its attribute within `CTA_TIMEOUT_DATA`, and ours.
type Timeout = (u16, TimeoutAttr);

/// `CTA_TIMEOUT_TCP_*`.
const TCP: &[Timeout] = &[
    (1, TimeoutAttr::TcpSynSent),
    (2, TimeoutAttr::TcpSynRecv),
    (3, TimeoutAttr::TcpEstablished),
    (4, TimeoutAttr::TcpFinWait),
    (5, TimeoutAttr::TcpCloseWait),
    (6, TimeoutAttr::TcpLastAck),
    (7, TimeoutAttr::TcpTimeWait),
    (8, TimeoutAttr::TcpClose),
    (9, TimeoutAttr::TcpSynSent2),
    (10, TimeoutAttr::TcpRetransmit),
    (11, TimeoutAttr::TcpUnack),
];
/// `CTA_TIMEOUT_UDP_UNREPLIED`, `_REPLIED`: there is none for the first packet alone.
const UDP: &[Timeout] = &[(1, TimeoutAttr::UdpSingle), (2, TimeoutAttr::UdpMultiple)];
/// `CTA_TIMEOUT_ICMP_TIMEOUT`, `CTA_TIMEOUT_ICMPV6_TIMEOUT`: there is none for replies.
const ICMP: &[Timeout] = &[(1, TimeoutAttr::IcmpFirst)];

/// A kind of policy: Ethernet type, address family, IP protocol, timeouts.
const KINDS: [(u16, u16, u8, &[Timeout]); 6] = [
    (0x0800, 2, 6, TCP),
    (0x86dd, 10, 6, TCP),
    (0x0800, 2, 17, UDP),
    (0x86dd, 10, 17, UDP),
    (0x0800, 2, 1, ICMP),
    (0x86dd, 10, 58, ICMP),
];

/// The names of a policy, by kind.
fn names(id: TimeoutId) -> impl Iterator<Item = String> {
    KINDS.iter().filter_map(move |(eth_type, _, proto, _)| {
        let name = TimeoutNames::ByProtocol.name(id, *eth_type, *proto)?;
        Some(name.as_str().to_string())
    })
}

/// The requests that create or replace a policy.
fn creations(id: TimeoutId, policy: &TimeoutPolicy) -> Result<Vec<NlRequest>, Error> {
    const REPLACE: u16 = 0x100;
    let creation = |((_, family, proto, timeouts), name): (&(u16, u16, u8, &[Timeout]), String)| {
        let asked = Asked::again(format!("set timeout policy {name}"), ATTRIBUTES, REPLY_BYTES);
        let flags = flag::CREATE | REPLACE;
        let mut request = MessageWriter::netfilter([SUBSYSTEM, message::NEW], flags, 0, asked);
        request.attrs.text(attr::NAME, &name);
        request.attrs.be16(attr::L3PROTO, *family);
        request.attrs.u8(attr::L4PROTO, *proto);
        request.attrs.nested(attr::DATA, |out| {
            for (number, timeout) in *timeouts {
                if let Some(seconds) = policy.get(*timeout) {
                    out.be32(*number, seconds);
                }
            }
        });
        request.finish()
    };
    KINDS.iter().zip(names(id)).map(creation).collect()
}

fn deletions(id: TimeoutId) -> Result<Vec<NlRequest>, Error> {
    let deletion = |name: String| {
        let asked = Asked::again(format!("delete timeout policy {name}"), ATTRIBUTES, REPLY_BYTES);
        let mut request = MessageWriter::netfilter([SUBSYSTEM, message::DELETE], 0, 0, asked);
        request.attrs.text(attr::NAME, &name);
        request.finish()
    };
    names(id).map(deletion).collect()
}

/// The number of a policy of ours, and its timeouts for one protocol; `None` for one of another program.
fn parse(body: &[u8]) -> Result<Option<(TimeoutId, TimeoutPolicy)>, AttrError> {
    let attrs = Attrs::parse(body.get(crate::message::NETFILTER_BYTES..).unwrap_or(&[]))?;
    let name = attrs.require(attr::NAME)?.text()?;
    let id = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')?.0.parse().ok());
    let Some(id) = id.map(TimeoutId).filter(|id| names(*id).any(|own| own == name)) else { return Ok(None) };
    let proto = attrs.require(attr::L4PROTO)?.u8()?;
    let known = KINDS.iter().find(|(.., kind, _)| *kind == proto).map_or(&[][..], |(.., timeouts)| timeouts);
    let mut policy = TimeoutPolicy::default();
    if let Some(data) = attrs.get(attr::DATA) {
        for timeout in data.nested()? {
            if let Some((_, attr)) = known.iter().find(|(number, _)| *number == timeout.kind) {
                policy.set(*attr, timeout.be32()?);
            }
        }
    }
    Ok(Some((id, policy)))
}

impl Conntrack {
    /// Timeouts that the kernel's policies lack.
    pub const MISSING_TIMEOUTS: &[TimeoutAttr] = &[TimeoutAttr::UdpFirst, TimeoutAttr::IcmpReply];

    /// Creates or replaces a timeout policy. Unset timeouts are the kernel's defaults of this moment.
    ///
    /// # Errors
    /// [`Error::NoTimeouts`], or the kernel refuses; a part of it may exist by then.
    pub fn set_timeout_policy(&self, id: TimeoutId, policy: &TimeoutPolicy) -> Result<(), Error> {
        self.transact_all(&creations(id, policy)?).into_iter().collect()
    }

    /// Deletes a timeout policy.
    ///
    /// # Errors
    /// [`Error::is_exists`] while flows use a part of it; else [`Error::is_not_found`] if there was none at all, or the
    /// kernel refuses.
    pub fn delete_timeout_policy(&self, id: TimeoutId) -> Result<(), Error> {
        let results = self.transact_all(&deletions(id)?);
        let any = results.iter().any(Result::is_ok);
        let mut refused: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
        // One that is in use means more than those that are gone.
        refused.sort_by_key(|e| (!e.is_exists(), e.is_not_found()));
        match refused.into_iter().next() {
            Some(e) if !(any && e.is_not_found()) => Err(e),
            _ => Ok(()),
        }
    }

    /// All timeout policies with names of this form, of any process.
    ///
    /// # Errors
    /// [`Error::NoTimeouts`], or the kernel does not reply.
    pub fn timeout_policies(&self) -> Result<BTreeMap<TimeoutId, TimeoutPolicy>, Error> {
        let asked = Asked::again("list timeout policies", ATTRIBUTES, 0);
        let request = MessageWriter::netfilter([SUBSYSTEM, message::GET], 0, 0, asked).finish()?;
        let mut dump = self.pool.dump(&request)?;
        let mut all: BTreeMap<TimeoutId, TimeoutPolicy> = BTreeMap::new();
        while let Some(one) = dump.next(parse) {
            if let Some((id, part)) = one.map_err(known)? {
                let policy = all.entry(id).or_default();
                part.iter().for_each(|(attr, seconds)| policy.set(attr, seconds));
            }
        }
        Ok(all)
    }

    fn transact_all(&self, requests: &[NlRequest]) -> Vec<Result<(), Error>> {
        let mut socket = match self.pool.take() {
            Ok(socket) => socket,
            Err(e) => return vec![Err(e)],
        };
        let results = socket.transact(requests, &mut |_, _| ());
        self.pool.put(socket);
        results.into_iter().map(|result| result.map_err(known)).collect()
    }
}

/// Translates netfilter's error for a missing subsystem: requests of ours are not invalid otherwise.
fn known(e: Error) -> Error {
    match e.errno() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => Error::NoTimeouts,
        _ => e,
    }
}

/// Reads the bytes after a netlink header as a policy, for fuzzing.
pub(crate) fn fuzz_policy(body: &[u8]) -> Option<(TimeoutId, TimeoutPolicy)> {
    let (id, policy) = parse(body).ok()??;
    // It can be written again.
    assert_eq!(creations(id, &policy).map(|all| all.len()).ok(), Some(KINDS.len()));
    Some((id, policy))
}

#[cfg(test)]
mod tests;
