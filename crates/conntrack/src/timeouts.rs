//! Timeouts: for each protocol state, by policy. A connection keeps the number of its policy; a change of the policy counts
//! from the connection's next packet on.

use sync::{AtomicU32, OnceLock, Ordering};

/// Policies have numbers below.
pub const POLICIES_MAX: usize = 4096;

/// A state with a timeout of its own (`CT_DPIF_TP_ATTR_*` of Open vSwitch).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeout {
    /// TCP: one side has sent.
    TcpSynSent,
    /// TCP: not established yet.
    TcpSynRecv,
    /// TCP: established.
    TcpEstablished,
    /// TCP: one side closes.
    TcpFinWait,
    /// TCP: both sides close.
    TcpTimeWait,
    /// TCP: closed.
    TcpClose,
    /// Others: one packet.
    UdpFirst,
    /// Others: several packets of one direction.
    UdpSingle,
    /// Others: packets of both directions.
    UdpMultiple,
    /// ICMP: requests only.
    IcmpFirst,
    /// ICMP: replies too.
    IcmpReply,
}

impl Timeout {
    /// All, in their order.
    pub const ALL: [Timeout; 11] = [
        Timeout::TcpSynSent,
        Timeout::TcpSynRecv,
        Timeout::TcpEstablished,
        Timeout::TcpFinWait,
        Timeout::TcpTimeWait,
        Timeout::TcpClose,
        Timeout::UdpFirst,
        Timeout::UdpSingle,
        Timeout::UdpMultiple,
        Timeout::IcmpFirst,
        Timeout::IcmpReply,
    ];

    /// Seconds without a policy, as in Open vSwitch.
    pub const fn usual_s(self) -> u32 {
        match self {
            Timeout::TcpSynSent | Timeout::TcpSynRecv | Timeout::TcpClose => 30,
            Timeout::TcpEstablished => 24 * 60 * 60,
            Timeout::TcpFinWait => 15 * 60,
            Timeout::TcpTimeWait => 45,
            Timeout::UdpFirst | Timeout::UdpSingle | Timeout::IcmpFirst => 60,
            Timeout::UdpMultiple | Timeout::IcmpReply => 30,
        }
    }
}

type Policy = [AtomicU32; Timeout::ALL.len()];

/// All policies.
pub(crate) struct Policies {
    /// Made on first use, and kept: its values change.
    policies: Box<[OnceLock<Box<Policy>>]>,
}

impl Policies {
    pub(crate) fn new() -> Policies {
        Policies { policies: (0..POLICIES_MAX).map(|_| OnceLock::new()).collect() }
    }

    /// Sets the seconds of a policy; those not named are the usual ones.
    pub(crate) fn set(&self, policy: u16, seconds: &[(Timeout, u32)]) {
        let Some(slot) = self.policies.get(usize::from(policy)).filter(|_| policy != 0) else { return };
        let values = slot.get_or_init(|| Box::new(Timeout::ALL.map(|t| AtomicU32::new(t.usual_s()))));
        for t in Timeout::ALL {
            let own = seconds.iter().find(|(of, _)| *of == t).map(|(_, s)| *s);
            values[t as usize].store(own.unwrap_or(t.usual_s()), Ordering::Relaxed);
        }
    }

    /// Milliseconds of a state under a policy; number 0 has the usual ones.
    #[inline]
    pub(crate) fn ms(&self, policy: u16, timeout: Timeout) -> u64 {
        let own = match policy {
            0 => None,
            n => self.policies.get(usize::from(n)).and_then(OnceLock::get),
        };
        let seconds = own.map_or(timeout.usual_s(), |p| p[timeout as usize].load(Ordering::Relaxed));
        u64::from(seconds) * 1000
    }
}
