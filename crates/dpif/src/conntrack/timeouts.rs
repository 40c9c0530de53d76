//! Timeout policies: seconds until an idle connection ends, by protocol and state.
//!
//! The slow path names the policy of a zone in the action that commits a connection
//! ([`CtAction::timeout`](crate::CtAction::timeout)); [`TimeoutNames`] tells the form of the name.

use super::proto;
use crate::actions::TimeoutName;
use crate::ops::DpifError;

/// Ethernet type of IPv4.
const ETH_IPV4: u16 = 0x0800;
/// Ethernet type of IPv6.
const ETH_IPV6: u16 = 0x86dd;

/// A timeout of a policy (`CT_DPIF_TP_ATTR_*` of Open vSwitch).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "Linux's names of states")]
pub enum TimeoutAttr {
    TcpSynSent,
    TcpSynRecv,
    TcpEstablished,
    TcpFinWait,
    TcpCloseWait,
    TcpLastAck,
    TcpTimeWait,
    TcpClose,
    TcpSynSent2,
    TcpRetransmit,
    TcpUnack,
    UdpFirst,
    UdpSingle,
    UdpMultiple,
    IcmpFirst,
    IcmpReply,
}

impl TimeoutAttr {
    /// All, with their keys in `CT_Timeout_Policy.timeouts`.
    pub const ALL: [(TimeoutAttr, &'static str); 16] = [
        (TimeoutAttr::TcpSynSent, "tcp_syn_sent"),
        (TimeoutAttr::TcpSynRecv, "tcp_syn_recv"),
        (TimeoutAttr::TcpEstablished, "tcp_established"),
        (TimeoutAttr::TcpFinWait, "tcp_fin_wait"),
        (TimeoutAttr::TcpCloseWait, "tcp_close_wait"),
        (TimeoutAttr::TcpLastAck, "tcp_last_ack"),
        (TimeoutAttr::TcpTimeWait, "tcp_time_wait"),
        (TimeoutAttr::TcpClose, "tcp_close"),
        (TimeoutAttr::TcpSynSent2, "tcp_syn_sent2"),
        (TimeoutAttr::TcpRetransmit, "tcp_retransmit"),
        (TimeoutAttr::TcpUnack, "tcp_unack"),
        (TimeoutAttr::UdpFirst, "udp_first"),
        (TimeoutAttr::UdpSingle, "udp_single"),
        (TimeoutAttr::UdpMultiple, "udp_multiple"),
        (TimeoutAttr::IcmpFirst, "icmp_first"),
        (TimeoutAttr::IcmpReply, "icmp_reply"),
    ];

    /// The timeout of a key of the database.
    pub fn of_key(key: &str) -> Option<TimeoutAttr> {
        TimeoutAttr::ALL.iter().find(|(_, name)| *name == key).map(|(attr, _)| *attr)
    }

    /// Its key.
    pub fn key(self) -> &'static str {
        TimeoutAttr::ALL[self as usize].1
    }
}

/// Timeouts in seconds; those that are not set are the tracker's defaults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TimeoutPolicy([Option<u32>; TimeoutAttr::ALL.len()]);

impl TimeoutPolicy {
    /// A timeout, in seconds.
    pub fn get(&self, attr: TimeoutAttr) -> Option<u32> {
        self.0[attr as usize]
    }

    /// Sets a timeout, in seconds.
    pub fn set(&mut self, attr: TimeoutAttr, seconds: u32) {
        self.0[attr as usize] = Some(seconds);
    }

    /// All that are set.
    pub fn iter(&self) -> impl Iterator<Item = (TimeoutAttr, u32)> {
        TimeoutAttr::ALL.iter().filter_map(|(attr, _)| Some((*attr, self.get(*attr)?)))
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl FromIterator<(TimeoutAttr, u32)> for TimeoutPolicy {
    fn from_iter<T: IntoIterator<Item = (TimeoutAttr, u32)>>(timeouts: T) -> TimeoutPolicy {
        let mut policy = TimeoutPolicy::default();
        timeouts.into_iter().for_each(|(attr, seconds)| policy.set(attr, seconds));
        policy
    }
}

/// Number of a policy in its datapath. There is no 0: that stands for the tracker's defaults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimeoutId(pub std::num::NonZeroU32);

/// Form of a policy's name in the action.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeoutNames {
    /// By its number, for all protocols: `7`. The tracker applies it to TCP, UDP, ICMP and ICMPv6.
    #[default]
    Number,
    /// By its number, protocol and IP version, as Linux needs: `ovs_tp_7_tcp4`.
    ByProtocol,
}

impl TimeoutNames {
    /// The name of a policy for connections of that Ethernet type and IP protocol; `None`: they have default
    /// timeouts. Both are ignored if the name does not depend on them.
    pub fn name(self, id: TimeoutId, eth_type: u16, ip_proto: u8) -> Option<TimeoutName> {
        let id = id.0;
        let text = match self {
            TimeoutNames::Number => id.to_string(),
            TimeoutNames::ByProtocol => {
                let protocol = match (eth_type, ip_proto) {
                    (ETH_IPV4, proto::TCP) => "tcp4",
                    (ETH_IPV6, proto::TCP) => "tcp6",
                    (ETH_IPV4, proto::UDP) => "udp4",
                    (ETH_IPV6, proto::UDP) => "udp6",
                    (ETH_IPV4, proto::ICMP) => "icmp4",
                    (ETH_IPV6, proto::ICMPV6) => "icmpv6",
                    _ => return None,
                };
                format!("ovs_tp_{id}_{protocol}")
            }
        };
        TimeoutName::new(&text)
    }

    /// The number in a name of [`TimeoutNames::Number`].
    pub fn number(name: &TimeoutName) -> Option<TimeoutId> {
        name.as_str().parse().ok().map(TimeoutId)
    }

    /// Whether names depend on the protocol, so that translations examine it.
    pub fn depend_on_protocol(self) -> bool {
        self == TimeoutNames::ByProtocol
    }
}

/// The timeout policies of a tracker. No call waits for packets.
pub trait TimeoutPolicies {
    /// Creates or replaces a policy. Connections keep the timeout that they have until their next packet.
    ///
    /// # Errors
    /// The request fails, or there are too many policies.
    fn set(&self, id: TimeoutId, policy: &TimeoutPolicy) -> Result<(), DpifError>;
    /// Timeouts that it ignores.
    fn ignored(&self) -> &'static [TimeoutAttr] {
        &[]
    }
    /// A policy, with the tracker's default for each timeout that was not set, as far as known.
    ///
    /// # Errors
    /// [`DpifError::NotFound`], or the request fails.
    fn get(&self, id: TimeoutId) -> Result<TimeoutPolicy, DpifError>;
    /// Removes a policy.
    ///
    /// # Errors
    /// [`DpifError::NotFound`]; [`DpifError::Busy`] while connections or flows use it: call again later; or the
    /// request fails.
    fn delete(&self, id: TimeoutId) -> Result<(), DpifError>;
    /// The numbers of all policies, including those of a former process.
    ///
    /// # Errors
    /// The request fails.
    fn list(&self) -> Result<Vec<TimeoutId>, DpifError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_found() {
        for (n, (attr, key)) in TimeoutAttr::ALL.iter().enumerate() {
            assert_eq!((*attr as usize, attr.key()), (n, *key));
            assert_eq!(TimeoutAttr::of_key(key), Some(*attr));
        }
        assert_eq!(TimeoutAttr::of_key("tcp_listen"), None);
    }

    #[test]
    fn a_policy_holds_what_was_set() {
        let mut policy = TimeoutPolicy::default();
        assert!(policy.is_empty());
        policy.set(TimeoutAttr::UdpFirst, 5);
        policy.set(TimeoutAttr::TcpSynSent, 0);
        policy.set(TimeoutAttr::UdpFirst, 6);
        let all = [(TimeoutAttr::TcpSynSent, 0), (TimeoutAttr::UdpFirst, 6)];
        assert_eq!(policy.iter().collect::<Vec<_>>(), all);
        assert_eq!(policy, all.into_iter().collect());
        assert!(!policy.is_empty());
        assert_eq!((policy.get(TimeoutAttr::UdpFirst), policy.get(TimeoutAttr::IcmpReply)), (Some(6), None));
    }

    #[test]
    fn names_are_those_of_open_vswitch() {
        use TimeoutNames::{ByProtocol, Number};
        let id = |n: u32| TimeoutId(n.try_into().unwrap());
        for (names, n, eth_type, ip_proto, name) in [
            (Number, 7, ETH_IPV4, 6, Some("7")),
            (Number, 7, 0, 132, Some("7")),
            (ByProtocol, 7, ETH_IPV4, 6, Some("ovs_tp_7_tcp4")),
            (ByProtocol, u32::MAX, ETH_IPV6, 17, Some("ovs_tp_4294967295_udp6")),
            (ByProtocol, 1, ETH_IPV4, 1, Some("ovs_tp_1_icmp4")),
            (ByProtocol, 1, ETH_IPV6, 58, Some("ovs_tp_1_icmpv6")),
            (ByProtocol, 1, ETH_IPV6, 1, None),
            (ByProtocol, 1, ETH_IPV4, 58, None),
            (ByProtocol, 1, ETH_IPV4, 132, None),
            (ByProtocol, 1, 0x0806, 6, None),
        ] {
            let found = names.name(id(n), eth_type, ip_proto);
            assert_eq!(found.as_ref().map(TimeoutName::as_str), name, "{names:?} {eth_type:x} {ip_proto}");
            let number = found.as_ref().and_then(TimeoutNames::number);
            assert_eq!(number, (names == Number).then_some(id(n)));
        }
        for bad in ["0", "-1", "4294967296", "x"] {
            assert_eq!(TimeoutNames::number(&TimeoutName::new(bad).unwrap()), None, "{bad}");
        }
    }
}
