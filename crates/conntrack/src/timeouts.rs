//! Timeouts: for each protocol state, by policy. A connection keeps the number of its policy; a change of the policy counts
//! from the connection's next packet on.

use dpif::{TimeoutAttr, TimeoutPolicy};
use sync::{AtomicU32, OnceLock, Ordering};

/// Policies have numbers below.
pub const POLICIES_MAX: usize = 4096;

/// Seconds without a policy, as in Open vSwitch; `None`: this tracker has no such state.
pub const fn usual_s(timeout: TimeoutAttr) -> Option<u32> {
    Some(match timeout {
        TimeoutAttr::TcpSynSent | TimeoutAttr::TcpSynRecv | TimeoutAttr::TcpClose => 30,
        TimeoutAttr::TcpEstablished => 24 * 60 * 60,
        TimeoutAttr::TcpFinWait => 15 * 60,
        TimeoutAttr::TcpTimeWait => 45,
        TimeoutAttr::UdpFirst | TimeoutAttr::UdpSingle | TimeoutAttr::IcmpFirst => 60,
        TimeoutAttr::UdpMultiple | TimeoutAttr::IcmpReply => 30,
        TimeoutAttr::TcpCloseWait
        | TimeoutAttr::TcpLastAck
        | TimeoutAttr::TcpSynSent2
        | TimeoutAttr::TcpRetransmit
        | TimeoutAttr::TcpUnack => return None,
    })
}

/// Timeouts without a policy in milliseconds, and 0 for none.
const USUAL_MS: [u64; TimeoutAttr::ALL.len()] = {
    let mut usual = [0; TimeoutAttr::ALL.len()];
    let mut n = 0;
    while n < usual.len() {
        let (timeout, _) = TimeoutAttr::ALL[n];
        if let Some(seconds) = usual_s(timeout) {
            usual[timeout as usize] = seconds as u64 * 1000;
        }
        n += 1;
    }
    usual
};

/// Values of a policy that does not exist, or no longer.
const ABSENT: u32 = u32::MAX;

type Policy = [AtomicU32; TimeoutAttr::ALL.len()];

/// No policy may have that number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchPolicy;

/// All policies.
pub(crate) struct Policies {
    /// Made on first use, and kept: its values change.
    policies: Box<[OnceLock<Box<Policy>>]>,
}

impl Policies {
    pub(crate) fn new() -> Policies {
        Policies { policies: (0..POLICIES_MAX).map(|_| OnceLock::new()).collect() }
    }

    /// Creates, replaces or (`None`) removes a policy. Policy 0 is fixed.
    ///
    /// # Errors
    /// The number is too high.
    pub(crate) fn set(&self, policy: u16, values: Option<&TimeoutPolicy>) -> Result<(), NoSuchPolicy> {
        let slot = self.policies.get(usize::from(policy)).filter(|_| policy != 0).ok_or(NoSuchPolicy)?;
        let own = slot.get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU32::new(ABSENT))));
        for (attr, _) in TimeoutAttr::ALL {
            let value = values.map_or(ABSENT, |v| v.get(attr).or(usual_s(attr)).unwrap_or(0).min(ABSENT - 1));
            own[attr as usize].store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A policy with its defaults; `None`: it does not exist.
    pub(crate) fn get(&self, policy: u16) -> Option<TimeoutPolicy> {
        let own = self.policies.get(usize::from(policy))?.get()?;
        let known = TimeoutAttr::ALL.into_iter().filter(|(attr, _)| usual_s(*attr).is_some());
        let values = known.map(|(attr, _)| (attr, own[attr as usize].load(Ordering::Relaxed)));
        let values: Vec<_> = values.filter(|(_, value)| *value != ABSENT).collect();
        (!values.is_empty()).then(|| values.into_iter().collect())
    }

    /// Numbers of all policies.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        (1..POLICIES_MAX as u16).filter(|n| self.get(*n).is_some()).collect()
    }

    /// Milliseconds of a state under a policy; number 0 has the usual ones.
    #[inline(always)]
    pub(crate) fn ms(&self, policy: u16, timeout: TimeoutAttr) -> u64 {
        if policy == 0 {
            return USUAL_MS[timeout as usize];
        }
        let own = self.policies.get(usize::from(policy)).and_then(OnceLock::get);
        let own = own.map(|p| p[timeout as usize].load(Ordering::Relaxed)).filter(|value| *value != ABSENT);
        u64::from(own.or(usual_s(timeout)).unwrap_or(0)) * 1000
    }
}
