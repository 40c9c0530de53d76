//! The effects of a translation, stored for replay with a megaflow's counters.

use crate::bond::Bond;
use crate::group::Group;
use crate::ids::{BridgeId, BundleId};
use crate::links::LinkSession;
use crate::mac_table::{Learned, MacTable};
use crate::mirror::MirrorCounters;
use crate::native::Solicit;
use crate::ports::PortCounters;
use crate::rule::{Rule, SharedTimeouts};
use crate::tables::TableCounters;
use dpif::FlowStats;
use flow::{MacAddr, Match, TableId};
use ofp_actions::Action;
use openflow::msg::flow_mod::FlowModFlags;
use routing::Neighbours;
use std::net::IpAddr;
use std::sync::Arc;
use sync::{AtomicU64, Mutex, Ordering};
use telemetry::netflow;

/// A rule made by a `learn` action.
#[derive(Clone, PartialEq, Debug)]
pub struct LearnedFlow {
    /// Table.
    pub table: TableId,
    /// Match.
    pub matching: Match,
    /// Priority.
    pub priority: u16,
    /// Cookie.
    pub cookie: u64,
    /// Idle timeout.
    pub idle_timeout_s: u16,
    /// Hard timeout.
    pub hard_timeout_s: u16,
    /// Flags.
    pub flags: FlowModFlags,
    /// Actions.
    pub actions: Vec<Action>,
    /// Maximum rules of this cookie in this table; 0: no limit.
    pub limit: u32,
}

/// One effect.
#[derive(Clone, Debug)]
pub enum XlateEffect {
    /// A rule was used.
    Rule(Arc<Rule>),
    /// A group was executed.
    Group {
        /// The group.
        group: Arc<Group>,
        /// The selected bucket; `None`: all.
        bucket: Option<usize>,
    },
    /// A table was looked up.
    Table {
        /// Its counters.
        counters: Arc<TableCounters>,
        /// Whether a rule matched.
        hit: bool,
    },
    /// `NORMAL` saw a source address.
    Normal {
        /// The MAC table.
        macs: Arc<Mutex<MacTable>>,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
        /// Input bundle.
        bundle: BundleId,
        /// The source told its address by ARP at a port that is no bond.
        holds: bool,
    },
    /// The effects that follow see each packet longer by that many bytes: a tunnel's headers are on it, or off again.
    Longer(i64),
    /// Output to a port counted here.
    Sent(Arc<PortCounters>),
    /// Input from such a port.
    Received(Arc<PortCounters>),
    /// Output to a balanced bond.
    Bond {
        /// The bond.
        bond: Arc<Bond>,
        /// Its hash of the packets.
        hash: u8,
    },
    /// Input from a port of a session that counts it as a sign of life.
    Alive(Arc<LinkSession>),
    /// A mirror selected the packet.
    Mirrored(Arc<MirrorCounters>),
    /// A `fin_timeout` action.
    FinTimeout {
        /// Timeouts of its rule.
        timeouts: Arc<SharedTimeouts>,
        /// Maximum idle timeout after a FIN or RST, in seconds; 0 leaves it unchanged.
        idle_s: u16,
        /// Likewise for the hard timeout.
        hard_s: u16,
    },
    /// A flow of NetFlow.
    Netflow(Box<NetflowEffect>),
    /// A neighbour is in use.
    Neighbour {
        /// All neighbours.
        table: Arc<Mutex<Neighbours>>,
        /// Its bridge.
        bridge: Arc<str>,
        /// Its address.
        ip: IpAddr,
    },
    /// A packet announced a neighbour.
    Snooped {
        /// All neighbours.
        table: Arc<Mutex<Neighbours>>,
        /// Its bridge.
        bridge: Arc<str>,
        /// Number of that.
        id: BridgeId,
        /// Its address.
        ip: IpAddr,
        /// Its Ethernet address.
        mac: MacAddr,
    },
    /// A neighbour's Ethernet address is not known.
    Unresolved(Arc<Solicit>),
    /// A `learn` action.
    Learn {
        /// Bridge.
        bridge: BridgeId,
        /// Rule.
        learned: Box<LearnedFlow>,
    },
}

/// Packets of a flow of NetFlow.
#[derive(Clone, Debug)]
pub struct NetflowEffect {
    /// The bridge's exporter.
    pub exporter: Arc<Mutex<netflow::Exporter>>,
    /// The flow.
    pub key: netflow::Key,
    /// Its output: a port, or one of [`netflow::output`].
    pub output: u16,
}

impl NetflowEffect {
    fn count(&self, seen: &FlowStats) {
        let FlowStats { packets, bytes, used_ms, tcp_flags } = *seen;
        let seen = netflow::Seen { packets, bytes, tcp_flags: tcp_flags as u8, used_ms };
        sync::lock(&self.exporter).count(&self.key, self.output, &seen);
    }

    fn is_same(&self, other: &NetflowEffect) -> bool {
        Arc::ptr_eq(&self.exporter, &other.exporter) && self.key == other.key
    }
}

/// TCP flags that end a connection: FIN and RST (RFC 9293 §3.1).
const ENDS_CONNECTION: u16 = 0x05;

impl XlateEffect {
    fn learns_address(&self) -> bool {
        matches!(self, XlateEffect::Normal { .. })
    }

    /// Whether it changes more than counters: learning, requests, or timeouts.
    fn changes_rules(&self) -> bool {
        matches!(
            self,
            XlateEffect::Normal { .. }
                | XlateEffect::Learn { .. }
                | XlateEffect::Snooped { .. }
                | XlateEffect::Unresolved(_)
                | XlateEffect::FinTimeout { .. }
        )
    }
}

fn credit([of_packets, of_bytes]: &[AtomicU64; 2], packets: u64, bytes: u64) {
    of_packets.fetch_add(packets, Ordering::Relaxed);
    of_bytes.fetch_add(bytes, Ordering::Relaxed);
}

/// Executes effects that change more than counters.
pub trait EffectHost {
    /// Adds a learned rule, or refreshes an existing one.
    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow, used_ms: u64);
    /// The MAC table learned that the address is on that bundle, so translations must be checked again.
    fn learned(&mut self, macs: &Arc<Mutex<MacTable>>, mac: MacAddr, bundle: BundleId, vlan: u16);
    /// A neighbour of a bridge is new or changed.
    fn neighbour_changed(&mut self, bridge: BridgeId, ip: IpAddr);
    /// Requests a neighbour's Ethernet address.
    fn solicit(&mut self, solicit: &Solicit, used_ms: u64);
}

/// The effects of one translation, in order.
#[derive(Clone, Debug, Default)]
pub struct XlateCache {
    effects: Vec<XlateEffect>,
}

impl XlateCache {
    /// Appends an effect.
    pub(crate) fn push(&mut self, effect: XlateEffect) {
        self.effects.push(effect);
    }

    /// The effects.
    pub fn effects(&self) -> &[XlateEffect] {
        &self.effects
    }

    fn netflow(&self) -> Option<&NetflowEffect> {
        let of_flow = |effect: &'_ XlateEffect| matches!(effect, XlateEffect::Netflow(_));
        match self.effects.iter().rfind(|effect| of_flow(effect)) {
            Some(XlateEffect::Netflow(flow)) => Some(flow),
            _ => None,
        }
    }

    /// No more packets have these effects, but perhaps those of `next`: ends the flow of NetFlow, unless that one goes on
    /// with it.
    pub fn end_flow(&self, next: Option<&XlateCache>) {
        let Some(flow) = self.netflow() else { return };
        if !next.and_then(XlateCache::netflow).is_some_and(|next| flow.is_same(next)) {
            sync::lock(&flow.exporter).end_flow(&flow.key);
        }
    }

    /// Applies learning and shortened timeouts, without counting.
    pub fn replay_learning(&self, seen: &FlowStats, host: &mut dyn EffectHost) {
        let seen = FlowStats { packets: 0, bytes: 0, ..*seen };
        self.replay_some(XlateEffect::changes_rules, &seen, host);
    }

    /// As [`XlateCache::replay_learning`], for packets of a former translation. Unless that one `learned` the address of
    /// their source, this one does not: a bond or a spanning tree may have refused them as copies.
    pub fn replay_learning_of_former(&self, learned: bool, seen: &FlowStats, host: &mut dyn EffectHost) {
        let seen = FlowStats { packets: 0, bytes: 0, ..*seen };
        self.replay_some(|e| e.changes_rules() && (learned || !e.learns_address()), &seen, host);
    }

    /// Whether it learns addresses of sources.
    pub fn learns_address(&self) -> bool {
        self.effects.iter().any(XlateEffect::learns_address)
    }

    /// Counts without learning: for packets of an outdated translation.
    pub fn replay_counters(&self, seen: &FlowStats, host: &mut dyn EffectHost) {
        self.replay_some(|e| !e.changes_rules(), seen, host);
    }

    /// Shortens timeouts only.
    pub fn replay_timeouts(&self, seen: &FlowStats, host: &mut dyn EffectHost) {
        self.replay_some(|e| matches!(e, XlateEffect::FinTimeout { .. }), seen, host);
    }

    /// Applies the effects for the packets seen, the last of them at `used_ms`. An older `used_ms` never overrides
    /// newer state.
    pub fn replay(&self, seen: &FlowStats, host: &mut dyn EffectHost) {
        self.replay_some(|_| true, seen, host);
    }

    fn replay_some(&self, which: impl Fn(&XlateEffect) -> bool, seen: &FlowStats, host: &mut dyn EffectHost) {
        let FlowStats { packets, mut bytes, used_ms, tcp_flags } = *seen;
        let longer = |effect: &XlateEffect| matches!(effect, XlateEffect::Longer(_));
        for effect in self.effects.iter().filter(|e| longer(e) || which(e)) {
            match effect {
                XlateEffect::Longer(by) => bytes = bytes.wrapping_add_signed(by.wrapping_mul(packets as i64)),
                XlateEffect::FinTimeout { timeouts, idle_s, hard_s } => {
                    if tcp_flags & ENDS_CONNECTION != 0 {
                        timeouts.reduce(*idle_s, *hard_s);
                    }
                }
                XlateEffect::Rule(rule) => rule.stats.credit(packets, bytes, used_ms),
                XlateEffect::Group { group, bucket } => group.credit(*bucket, packets, bytes),
                XlateEffect::Table { counters, hit } => counters.credit(*hit, packets),
                XlateEffect::Sent(port) => credit(&port.tx, packets, bytes),
                XlateEffect::Received(port) => credit(&port.rx, packets, bytes),
                XlateEffect::Bond { bond, hash } => bond.state().account(*hash, packets, bytes),
                XlateEffect::Mirrored(mirror) => mirror.credit(packets, bytes),
                XlateEffect::Alive(session) => session.count(packets),
                XlateEffect::Netflow(flow) => flow.count(seen),
                XlateEffect::Normal { macs, vlan, mac, bundle, holds } => {
                    let mut table = sync::lock(macs);
                    let learned = table.learn(*vlan, *mac, *bundle, used_ms);
                    if *holds {
                        table.hold(*vlan, *mac, used_ms);
                    }
                    drop(table);
                    if learned == Learned::Changed {
                        host.learned(macs, *mac, *bundle, *vlan);
                    }
                }
                XlateEffect::Neighbour { table, bridge, ip } => {
                    if packets != 0 {
                        sync::lock(table).lookup(used_ms, bridge, *ip);
                    }
                }
                XlateEffect::Snooped { table, bridge, id, ip, mac } => {
                    if sync::lock(table).learn(used_ms, bridge, *ip, *mac) {
                        host.neighbour_changed(*id, *ip);
                    }
                }
                XlateEffect::Unresolved(solicit) => host.solicit(solicit, used_ms),
                XlateEffect::Learn { bridge, learned } => host.learn(*bridge, learned, used_ms),
            }
        }
    }
}
