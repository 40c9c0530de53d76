//! Tracked connections, and the interface to a datapath's connection tracker: [`Connections`], with the optional
//! parts [`TimeoutPolicies`] and [`Fragments`].
//!
//! A tracker implements a part: each setting that it lacks is [`DpifError::Unsupported`]. Used by the commands
//! `dpctl/ct-*`, `dpctl/ipf-*`, by OpenFlow's requests to flush, and by the configuration of zones. The database's
//! claim on limits is the caller's: a tracker knows the last value only.

mod carried;
mod counts;
mod fragments;
mod timeouts;

use crate::actions::Masked;
use crate::ops::DpifError;
pub use carried::{CtCarry, CtExport, CtImported, CtRestore};
pub use counts::{CtCounts, CtRefusal, CtStatistics, CtZoneCounts};
pub use fragments::{FragmentCounts, FragmentList, FragmentState, FragmentStatus, Fragments, IpFamily};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;
pub use timeouts::{TimeoutAttr, TimeoutId, TimeoutNames, TimeoutPolicies, TimeoutPolicy};

/// Protocol numbers (IANA).
pub(crate) mod proto {
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const SCTP: u8 = 132;
}

/// Source and destination address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CtAddresses {
    /// Addresses of IPv4.
    V4 {
        /// Source.
        src: Ipv4Addr,
        /// Destination.
        dst: Ipv4Addr,
    },
    /// Addresses of IPv6.
    V6 {
        /// Source.
        src: Ipv6Addr,
        /// Destination.
        dst: Ipv6Addr,
    },
}

impl CtAddresses {
    /// Source and destination.
    pub fn both(self) -> [IpAddr; 2] {
        match self {
            CtAddresses::V4 { src, dst } => [src.into(), dst.into()],
            CtAddresses::V6 { src, dst } => [src.into(), dst.into()],
        }
    }

    /// The ICMP protocol of this address family.
    pub fn icmp(self) -> u8 {
        match self {
            CtAddresses::V4 { .. } => proto::ICMP,
            CtAddresses::V6 { .. } => proto::ICMPV6,
        }
    }
}

/// Transport fields of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CtTransport {
    /// Ports; zero for protocols that have none.
    Ports {
        /// Source.
        src: u16,
        /// Destination.
        dst: u16,
    },
    /// Identifier, type and code of ICMP and ICMPv6.
    Icmp {
        /// Identifier.
        id: u16,
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
}

/// A tuple: the common fields of one direction's packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CtTuple {
    /// Addresses.
    pub addresses: CtAddresses,
    /// IP protocol.
    pub proto: u8,
    /// Ports, or ICMP fields: those only with [`CtAddresses::icmp`].
    pub transport: CtTransport,
}

/// Counters of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtCounters {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// States of TCP connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TcpState {
    /// None, or a state without a name here.
    Closed,
    /// Waits for a SYN.
    Listen,
    /// A SYN was seen.
    SynSent,
    /// SYN and ACK were seen.
    SynRecv,
    /// Established.
    Established,
    /// The other side has sent a FIN.
    CloseWait,
    /// Closed, not yet acknowledged.
    FinWait1,
    /// Both sides closed at once, or a reset was seen.
    Closing,
    /// The last acknowledgement is missing.
    LastAck,
    /// Closed and acknowledged.
    FinWait2,
    /// Timed out; late packets are still recognised.
    TimeWait,
}

impl TcpState {
    /// All, in their order.
    pub const ALL: [TcpState; 11] = [
        TcpState::Closed,
        TcpState::Listen,
        TcpState::SynSent,
        TcpState::SynRecv,
        TcpState::Established,
        TcpState::CloseWait,
        TcpState::FinWait1,
        TcpState::Closing,
        TcpState::LastAck,
        TcpState::FinWait2,
        TcpState::TimeWait,
    ];

    /// The one state that lists and statistics show for both sides: the more advanced one, with a name that the trackers of
    /// Linux and of the userspace datapath have in common.
    #[must_use]
    pub fn of_both(a: TcpState, b: TcpState) -> TcpState {
        let state = a.max(b);
        if state == TcpState::FinWait2 {
            TcpState::TimeWait
        } else if state == TcpState::SynRecv {
            TcpState::Established
        } else {
            state
        }
    }
}

/// One side of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSide {
    /// Its state.
    pub state: TcpState,
    /// Window scale.
    pub window_scale: u8,
    /// `IP_CT_TCP_FLAG_*` of linux/netfilter/nf_conntrack_tcp.h.
    pub flags: u8,
}

/// Protocol-specific data of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CtProtocol {
    /// TCP: of the original direction and the other.
    Tcp(TcpSide, TcpSide),
    /// SCTP.
    Sctp {
        /// `SCTP_CONNTRACK_*` of linux/netfilter/nf_conntrack_sctp.h.
        state: u8,
        /// Verification tags of the original direction and the other.
        tags: [u32; 2],
    },
}

/// A tracked connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Original tuple.
    pub orig: CtTuple,
    /// Reply tuple: translated addresses differ from those of `orig`.
    pub reply: CtTuple,
    /// Original tuple of the master connection.
    pub parent: Option<CtTuple>,
    /// Its zone.
    pub zone: u16,
    /// Its mark.
    pub mark: u32,
    /// Its labels.
    pub labels: u128,
    /// `IPS_*` of linux/netfilter/nf_conntrack_common.h.
    pub status: u32,
    /// The tracker's id of it.
    pub id: u32,
    /// Remaining timeout.
    pub timeout_s: u32,
    /// Counters of both directions; zero if disabled.
    pub counters: [CtCounters; 2],
    /// Start time, in nanoseconds of the wall clock; 0: unknown.
    pub start_ns: u64,
    /// Stop time; 0: still active, or unknown.
    pub stop_ns: u64,
    /// Protocol-specific data.
    pub protocol: Option<CtProtocol>,
    /// Helper for related connections.
    pub helper: Option<String>,
}

impl Connection {
    /// A connection of zone 0 without anything but its tuples.
    pub fn new(orig: CtTuple, reply: CtTuple) -> Connection {
        Connection {
            orig,
            reply,
            parent: None,
            zone: 0,
            mark: 0,
            labels: 0,
            status: 0,
            id: 0,
            timeout_s: 0,
            counters: [CtCounters::default(); 2],
            start_ns: 0,
            stop_ns: 0,
            protocol: None,
            helper: None,
        }
    }
}

/// A match on some fields of a tuple. The default matches all tuples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtTupleMatch {
    /// Source address.
    pub src: Option<IpAddr>,
    /// Destination address, of the same family.
    pub dst: Option<IpAddr>,
    /// IP protocol; 0 means any.
    pub proto: u8,
    /// Source port.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
    /// ICMP identifier.
    pub icmp_id: Option<u16>,
    /// ICMP type.
    pub icmp_type: Option<u8>,
    /// ICMP code.
    pub icmp_code: Option<u8>,
}

impl CtTupleMatch {
    /// Whether all of its fields equal those of `tuple`.
    pub fn matches(&self, tuple: &CtTuple) -> bool {
        fn fits<T: PartialEq>(wanted: Option<T>, has: Option<T>) -> bool {
            wanted.is_none() || wanted == has
        }
        let [src, dst] = tuple.addresses.both();
        let (ports, icmp) = match tuple.transport {
            CtTransport::Ports { src, dst } => ((Some(src), Some(dst)), (None, None, None)),
            CtTransport::Icmp { id, kind, code } => ((None, None), (Some(id), Some(kind), Some(code))),
        };
        (self.proto == 0 || self.proto == tuple.proto)
            && fits(self.src, Some(src))
            && fits(self.dst, Some(dst))
            && fits(self.src_port, ports.0)
            && fits(self.dst_port, ports.1)
            && fits(self.icmp_id, icmp.0)
            && fits(self.icmp_type, icmp.1)
            && fits(self.icmp_code, icmp.2)
    }

    /// The single matching tuple, if the match is exact.
    pub fn exact(&self) -> Option<CtTuple> {
        let addresses = match (self.src?, self.dst?) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => CtAddresses::V4 { src, dst },
            (IpAddr::V6(src), IpAddr::V6(dst)) => CtAddresses::V6 { src, dst },
            _ => return None,
        };
        let transport = match self.proto {
            0 => return None,
            p if p == addresses.icmp() => {
                CtTransport::Icmp { id: self.icmp_id?, kind: self.icmp_type?, code: self.icmp_code? }
            }
            _ => CtTransport::Ports { src: self.src_port?, dst: self.dst_port? },
        };
        Some(CtTuple { addresses, proto: self.proto, transport })
    }
}

/// A selection of connections: those that all of its parts select. The default selects all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtMatch {
    /// Connections of this zone, or of all zones.
    pub zone: Option<u16>,
    /// Those whose mark has this value under the mask.
    pub mark: Option<Masked<u32>>,
    /// Those whose labels have this value under the mask.
    pub labels: Option<Masked<u128>>,
    /// Those whose original tuple matches.
    pub orig: CtTupleMatch,
    /// Those whose reply tuple matches.
    pub reply: CtTupleMatch,
}

impl CtMatch {
    /// Whether it selects that connection.
    pub fn matches(&self, connection: &Connection) -> bool {
        self.zone.is_none_or(|zone| zone == connection.zone)
            && self.mark.is_none_or(|m| (connection.mark ^ m.value) & m.mask == 0)
            && self.labels.is_none_or(|l| (connection.labels ^ l.value) & l.mask == 0)
            && self.orig.matches(&connection.orig)
            && self.reply.matches(&connection.reply)
    }

    /// The zone and tuple of the field `orig`, if it selects by them alone and thus at most one connection: as in Open
    /// vSwitch, that of either direction. Without a zone, that of zone 0.
    pub fn exact(&self) -> Option<(u16, CtTuple)> {
        let rest = CtMatch { zone: None, orig: CtTupleMatch::default(), ..*self };
        let tuple = self.orig.exact().filter(|_| rest == CtMatch::default())?;
        Some((self.zone.unwrap_or(0), tuple))
    }
}

/// Zones with a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CtZone {
    /// All zones without their own limit.
    Default,
    /// That zone.
    Zone(u16),
}

/// Connection limit of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CtLimit {
    /// Its zones.
    pub zone: CtZone,
    /// Maximum connections. 0 is no limit for [`CtZone::Default`] and for zones with no limit of their own.
    pub limit: u32,
    /// Current connections; not reported for [`CtZone::Default`].
    pub count: u32,
}

/// Receives connections one by one.
pub trait ConnectionSink {
    /// Discards the connections so far: the list restarts.
    fn restart(&mut self);
    /// One connection; returns whether to continue.
    fn connection(&mut self, connection: &Connection) -> ControlFlow<()>;
}

/// A connection that a helper expects (`alg=`): its first packet is related to the parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// Expected original tuple; source port 0 is any.
    pub tuple: CtTuple,
    /// Original tuple of the parent.
    pub parent: CtTuple,
    /// Its zone.
    pub zone: u16,
    /// The parent's mark.
    pub mark: u32,
    /// The parent's labels.
    pub labels: u128,
}

/// Receives expectations one by one; returns whether to continue.
pub type ExpectationSink<'a> = dyn FnMut(&Expectation) -> ControlFlow<()> + 'a;

/// Error of a setting that a tracker lacks.
fn lacks(what: &str) -> DpifError {
    DpifError::Unsupported(format!("the connection tracker of this datapath has no {what}"))
}

/// A connection tracker. [`Connections::list`], [`Connections::flush`], [`Connections::expectations`] and
/// [`Connections::buckets`] may take long with many connections: call them on a thread that may wait. All others
/// return at once.
pub trait Connections {
    /// All connections, or those of a zone, one by one. Those created or removed meanwhile may be missing or
    /// repeated.
    ///
    /// # Errors
    /// There is no tracker, or the request fails.
    fn list(&self, zone: Option<u16>, sink: &mut dyn ConnectionSink) -> Result<(), DpifError>;
    /// Removes the selected connections. Without a zone, an exact original tuple is that of zone 0
    /// ([`CtMatch::exact`]).
    ///
    /// # Errors
    /// As above; [`DpifError::NotFound`] if an exactly selected connection does not exist.
    fn flush(&self, which: &CtMatch) -> Result<(), DpifError>;

    /// Expectations of helpers, all or those of a zone, one by one.
    ///
    /// # Errors
    /// The tracker does not show any.
    fn expectations(&self, zone: Option<u16>, sink: &mut ExpectationSink<'_>) -> Result<(), DpifError> {
        let _unused = (zone, sink);
        Err(lacks("list of expectations"))
    }
    /// Number of connections in each bucket of its table; at most 65,536 buckets, so a larger table reports groups of
    /// buckets.
    ///
    /// # Errors
    /// The tracker does not show them.
    fn buckets(&self) -> Result<Vec<u32>, DpifError> {
        Err(lacks("view of its buckets"))
    }

    /// Number of connections.
    ///
    /// # Errors
    /// The tracker does not count them.
    fn count(&self) -> Result<u32, DpifError> {
        Err(lacks("count of its connections"))
    }
    /// Maximum number of connections.
    ///
    /// # Errors
    /// The tracker has none, or does not show it.
    fn maximum(&self) -> Result<u32, DpifError> {
        Err(lacks("maximum of connections"))
    }
    /// Sets the maximum number of connections. Connections beyond it stay.
    ///
    /// # Errors
    /// As [`Connections::maximum`].
    fn set_maximum(&self, connections: u32) -> Result<(), DpifError> {
        let _unused = connections;
        Err(lacks("maximum of connections"))
    }
    /// Whether TCP segments outside of the window are invalid.
    ///
    /// # Errors
    /// The tracker has no such setting.
    fn checks_sequences(&self) -> Result<bool, DpifError> {
        Err(lacks("setting for the check of sequence numbers"))
    }
    /// Sets [`Connections::checks_sequences`].
    ///
    /// # Errors
    /// The tracker has no such setting.
    fn set_checks_sequences(&self, checks: bool) -> Result<(), DpifError> {
        let _unused = checks;
        Err(lacks("setting for the check of sequence numbers"))
    }
    /// Interval at which expired connections are removed, in milliseconds.
    ///
    /// # Errors
    /// The tracker has no such setting.
    fn sweep_interval_ms(&self) -> Result<u32, DpifError> {
        Err(lacks("sweep interval"))
    }
    /// Sets [`Connections::sweep_interval_ms`].
    ///
    /// # Errors
    /// The tracker has no such setting, or the value is out of its range.
    fn set_sweep_interval_ms(&self, interval_ms: u32) -> Result<(), DpifError> {
        let _unused = interval_ms;
        Err(lacks("sweep interval"))
    }

    /// Begins the way of all connections to such a process. Fragments that wait for others stay behind.
    ///
    /// # Errors
    /// The connections need none: they outlive the process.
    fn export(&self, carry: CtCarry) -> Result<Box<dyn CtExport>, DpifError> {
        let _unused = carry;
        Err(lacks("export of its connections"))
    }
    /// Takes a slice of [`CtCarry::Over`], in the order of the slices, on any thread. Packets may go on meanwhile. A slice with
    /// faults is taken as far as it is right.
    ///
    /// # Errors
    /// As [`Connections::export`].
    fn import(&self, slice: &[u8]) -> Result<CtImported, DpifError> {
        let _unused = slice;
        Err(lacks("import of connections"))
    }

    /// Begins the import of connections that another process kept.
    ///
    /// # Errors
    /// As [`Connections::export`].
    fn restore(&self) -> Result<Box<dyn CtRestore>, DpifError> {
        Err(lacks("import of connections"))
    }

    /// The limits of these zones, those without one of their own with the default's; without zones: all that exist.
    /// The default comes first, if it is asked for or none is.
    ///
    /// # Errors
    /// The tracker has no limits, or the request fails.
    fn limits(&self, zones: &[CtZone]) -> Result<Vec<CtLimit>, DpifError>;
    /// Sets limits. Connections beyond them stay.
    ///
    /// # Errors
    /// As [`Connections::limits`].
    fn set_limits(&self, limits: &[(CtZone, u32)]) -> Result<(), DpifError>;
    /// Removes limits: zones without a limit of their own have the default.
    ///
    /// # Errors
    /// As [`Connections::limits`].
    fn remove_limits(&self, zones: &[CtZone]) -> Result<(), DpifError>;

    /// Its timeout policies; `None`: it has fixed timeouts. Exactly the datapaths with
    /// [`CtCapabilities::timeout`](crate::CtCapabilities::timeout) have them.
    fn timeout_policies(&self) -> Option<&dyn TimeoutPolicies> {
        None
    }
    /// Its reassembly of fragments; `None`: it has none of its own.
    fn fragments(&self) -> Option<&dyn Fragments> {
        None
    }
    /// Its connections, with the busiest zones: `each` with most connections, `each` with most created ones, `each`
    /// with most refused ones. `None`: it tracks nothing yet, or does not count by zone.
    fn statistics(&self, each: usize) -> Option<CtStatistics> {
        let _unused = each;
        None
    }
    /// Its counters, by their names in `coverage/show`.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
