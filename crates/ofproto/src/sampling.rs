//! Sampling by sFlow, IPFIX and the action `sample`: settings that translations read, and samples on their way to the
//! exporters.
//!
//! A translation puts a userspace action with a cookie of a sample where OVS has it. The datapath sends up the packets that
//! the probability selects, and handlers hand them to the [`SampleSink`], which must not block.

use crate::ids::BridgeId;
use dpif::actions::tnl_header::{Encap, OuterIp};
use dpif::actions::{Output, Sample, SetAction, TnlPush, Userspace};
use dpif::{DpAction, UserCookie};
use flow::{DpPort, Flow, OfPort, Tunnel};
use openflow::msg::ipfix::IpfixStats;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sync::Mutex;

/// Sampling of all packets of a bridge for IPFIX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BridgeIpfix {
    /// Probability out of `u32::MAX`.
    pub probability: u32,
    /// Packets that enter.
    pub input: bool,
    /// Packets that leave.
    pub output: bool,
    /// The datapath reports the outer headers of tunnels that they leave by.
    pub tunnels: bool,
}

/// A kind of tunnel in records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelFacts {
    /// Number of the type in IPFIX.
    pub ipfix_kind: u8,
    /// Protocol of the outer IP header.
    pub protocol: u8,
    /// Bytes of the key in IPFIX.
    pub key_bytes: u8,
}

/// Tunnels that records show, by their type in the database.
const TUNNELS: [(&str, TunnelFacts); 3] = [
    ("vxlan", TunnelFacts { ipfix_kind: 1, protocol: 17, key_bytes: 3 }),
    ("gre", TunnelFacts { ipfix_kind: 2, protocol: 47, key_bytes: 4 }),
    ("geneve", TunnelFacts { ipfix_kind: 7, protocol: 17, key_bytes: 3 }),
];

/// A port as records show it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SampledPort {
    /// Index of its interface; 0: none.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Its OpenFlow number.
    pub of_port: OfPort,
    /// Its type in the database.
    pub type_name: String,
}

impl SampledPort {
    /// Its kind of tunnel, if records show it.
    pub fn tunnel(&self) -> Option<TunnelFacts> {
        TUNNELS.iter().find(|(name, _)| *name == self.type_name).map(|(_, facts)| *facts)
    }
}

/// Counters of a bridge's exporters of IPFIX: those of all packets, and those of sets of collectors by number. Equal only to
/// itself.
#[derive(Clone, Debug, Default)]
pub struct IpfixCounters(pub Arc<Mutex<BTreeMap<Option<u32>, IpfixStats>>>);

impl PartialEq for IpfixCounters {
    fn eq(&self, other: &IpfixCounters) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for IpfixCounters {}

/// Sampling of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sampling {
    /// Probability of samples for sFlow, out of `u32::MAX`.
    pub sflow: Option<u32>,
    /// Samples of all packets for IPFIX.
    pub ipfix: Option<BridgeIpfix>,
    /// Whether the action `sample` has collectors of IPFIX.
    pub flows: bool,
    /// Sets of collectors that show the outer headers of tunnels.
    pub tunnel_sets: BTreeSet<u32>,
    /// Groups of local readers (`psample`), by the number of the set of collectors in the action `sample`.
    pub local_groups: BTreeMap<u32, u32>,
    /// A flow that only samples ends with a drop that is counted.
    pub explicit_drops: bool,
    /// The bridge's ports by their datapath numbers.
    pub ports: BTreeMap<DpPort, SampledPort>,
    /// Counters of its exporters of IPFIX.
    pub counters: IpfixCounters,
}

impl Sampling {
    /// Whether records have the outer headers of a port.
    pub(crate) fn shows_tunnel(&self, port: DpPort) -> bool {
        self.ports.get(&port).is_some_and(|port| port.tunnel().is_some())
    }
}

/// A sampled packet.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The bridge that samples.
    pub bridge: BridgeId,
    /// Its sampling when the packet came.
    pub sampling: Arc<Sampling>,
    /// The sample.
    pub cookie: UserCookie,
    /// The first bytes of the packet.
    pub frame: Box<[u8]>,
    /// All its bytes.
    pub frame_bytes: u32,
    /// Its fields.
    pub flow: Box<Flow>,
    /// The port that received it.
    pub in_port: DpPort,
    /// Where its actions send it.
    pub path: SampledPath,
}

/// The changes that actions make to a sampled packet.
#[derive(Clone, Debug, Default)]
pub struct SampledPath {
    /// Whether a port gets it.
    pub has_output: bool,
    /// Its only output, or the one where it is sampled, is by this tunnel, whose IP protocol is this (0: unknown).
    pub tunnel: Option<(Tunnel, u8)>,
    /// The last port of its actions.
    pub port: Option<DpPort>,
    /// Labels that it leaves with, innermost first; `None`: unknown.
    pub labels: Option<Vec<u32>>,
}

/// Takes samples; must not block.
pub trait SampleSink: Send + Sync {
    /// A packet was sampled.
    fn sampled(&self, sample: Sampled);
}

/// Bytes of a sampled packet that are kept: more than any header of a record.
pub const FRAME_MAX_BYTES: usize = 1024;
/// Most labels that are followed.
const LABELS_MAX: usize = 4;
/// The bit of the last label.
const BOTTOM: u32 = 1 << 8;

/// Whether an action only samples.
pub fn is_sampling(action: &DpAction) -> bool {
    if let DpAction::Sample(Sample { actions, .. }) = action {
        return actions.last().is_some_and(is_sampling);
    }
    matches!(action, DpAction::Psample(_))
        || matches!(action, DpAction::Userspace(Userspace(cookie)) if cookie.is_sample())
}

/// The ports to which actions send a packet: their number, and the last one.
#[expect(clippy::wildcard_enum_match_arm, reason = "actions without a port are the rule")]
pub fn outputs(actions: &[DpAction]) -> (u32, Option<DpPort>) {
    let (mut count, mut last) = (0, None);
    for action in actions {
        match action {
            DpAction::Output(Output(port)) => (count, last) = (count + 1, Some(*port)),
            DpAction::LbOutput(_) => (count, last) = (count + 1, None),
            _ if is_sampling(action) => {}
            _ => {
                for list in action.lists() {
                    let (inner, port) = outputs(list);
                    (count, last) = (count + inner, port.or(last));
                }
            }
        }
    }
    (count, last)
}

impl SampledPath {
    /// The path by these actions of a packet with this flow.
    pub fn of(flow: &Flow, actions: &[DpAction]) -> SampledPath {
        let (count, port) = outputs(actions);
        let mut path = SampledPath { has_output: count > 0, port, ..SampledPath::default() };
        let mut walk = Walk { labels: Some(received_labels(flow)), tunnels: 0, tunnel: None };
        walk.run(actions);
        path.labels = walk.labels;
        if walk.tunnels == 1 {
            path.tunnel = walk.tunnel;
        }
        path
    }
}

/// The labels of a packet, innermost first.
fn received_labels(flow: &Flow) -> Vec<u32> {
    if !packet::headers::is_mpls(flow.dl_type) {
        return Vec::new();
    }
    let end = flow.mpls_lse.iter().position(|lse| lse & BOTTOM != 0).map_or(LABELS_MAX, |i| i + 1);
    flow.mpls_lse[..end].iter().rev().copied().collect()
}

struct Walk {
    labels: Option<Vec<u32>>,
    tunnels: u32,
    tunnel: Option<(Tunnel, u8)>,
}

impl Walk {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "actions that change neither labels nor tunnels are the rule"
    )]
    fn run(&mut self, actions: &[DpAction]) {
        for action in actions {
            match action {
                DpAction::PushMpls(push) => match &mut self.labels {
                    Some(labels) if labels.len() < LABELS_MAX => labels.push(push.lse),
                    labels => *labels = None,
                },
                DpAction::PopMpls(_) => {
                    let popped = self.labels.take().filter(|labels| !labels.is_empty());
                    self.labels = popped.map(|mut labels| {
                        labels.pop();
                        labels
                    });
                }
                DpAction::Set(SetAction::Mpls(set)) => {
                    if let Some(top) = self.labels.as_mut().and_then(|labels| labels.last_mut()) {
                        *top = *top & !set.mask | set.value;
                    }
                }
                DpAction::Set(SetAction::Tunnel(outer)) => {
                    self.tunnels += 1;
                    self.tunnel = Some((outer.tunnel, 0));
                }
                DpAction::TnlPush(push) => {
                    self.tunnels += 1;
                    self.tunnel = pushed(push);
                }
                DpAction::Clone(clone) => self.run(&clone.0),
                _ => {}
            }
        }
    }
}

/// The outer headers of a tunnel over IPv4.
fn pushed(push: &TnlPush) -> Option<(Tunnel, u8)> {
    let fields = push.header.fields();
    let OuterIp::V4 { src, dst, tos, ttl, .. } = fields.ip else { return None };
    let (src_port, dst_port, id) = match &fields.encap {
        Encap::Vxlan { udp, vni, .. } | Encap::Geneve { udp, vni, .. } => (udp.src, udp.dst, u64::from(*vni)),
        Encap::Gre { key, .. } => (0, 0, u64::from(key.unwrap_or(0))),
        Encap::Erspan { .. } | Encap::Gtpu { .. } | Encap::Srv6 { .. } => return None,
    };
    let (tp_src, tp_dst) = (src_port, dst_port);
    let (src, dst) = (src, dst);
    let tunnel = Tunnel { id, src, dst, tos, ttl, tp_src, tp_dst, ..Tunnel::default() };
    Some((tunnel, fields.encap.ip_proto()))
}

#[cfg(test)]
mod tests;
