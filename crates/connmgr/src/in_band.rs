//! In-band control: hidden rules that keep the path to controllers and managers through the bridge itself.
//!
//! The rules have priorities above those of OpenFlow, so no rule of a controller can cut it off. They forward ARP of
//! the bridge's own device, of next hops and of controllers, TCP with controllers, and DHCP requests of the device
//! (OVS's design document, "In-Band Control"). The owner resolves next hops.

use super::fail::{NORMAL, own_rule};
use super::{BridgeCtx, Connmgr};
use flow::fields::FieldId;
use flow::{MacAddr, Match, OfPort, TableId};
use ofp_actions::{Action, SetQueue};
use packet::headers as h;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// Priority of the first kind of rules; the others follow.
const PRIORITY: i32 = 180_000;
const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;

/// Remotes to reach through the bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InBandConfig {
    /// Addresses of controllers and managers. Without any, there is no in-band control.
    pub remotes: BTreeSet<SocketAddrV4>,
    /// Addresses of the next hops to them, as far as known.
    pub next_hops: BTreeSet<MacAddr>,
    /// `other_config:in-band-queue`.
    pub queue: Option<u32>,
}

/// In-band control of a bridge.
#[derive(Default)]
pub(super) struct InBand {
    config: InBandConfig,
    /// The rules as they are in the table, and the state that they were made from.
    installed: Option<Installed>,
}

struct Installed {
    config: InBandConfig,
    local: MacAddr,
    rules: Vec<(i32, Match)>,
}

impl InBand {
    /// Notes that all rules of the bridge were removed.
    pub(super) fn flushed(&mut self) {
        self.installed = None;
    }
}

fn arp(op: u16, field: FieldId, value: u128) -> Match {
    let mut m = Match::catchall();
    m.set(FieldId::EthType, h::ETH_TYPE_ARP.into());
    m.set(FieldId::ArpOp, op.into());
    m.set(field, value);
    m
}

fn tcp(address: (FieldId, Ipv4Addr), port: (FieldId, u16)) -> Match {
    let mut m = Match::catchall();
    m.set(FieldId::EthType, h::ETH_TYPE_IP.into());
    m.set(FieldId::NwProto, h::IPPROTO_TCP.into());
    m.set(address.0, u32::from(address.1).into());
    m.set(port.0, port.1.into());
    m
}

fn dhcp_requests(local: MacAddr) -> Match {
    let mut m = Match::catchall();
    m.set(FieldId::InPortOxm, OfPort::LOCAL.0.into());
    m.set(FieldId::EthType, h::ETH_TYPE_IP.into());
    m.set(FieldId::NwProto, h::IPPROTO_UDP.into());
    m.set(FieldId::EthSrc, local.to_u64().into());
    m.set(FieldId::UdpSrc, h::DHCP_CLIENT_PORT.into());
    m.set(FieldId::UdpDst, h::DHCP_SERVER_PORT.into());
    m
}

/// The matches of the rules, with their priorities.
fn rules(config: &InBandConfig, local: MacAddr) -> Vec<(i32, Match)> {
    let mac = |mac: &MacAddr| u128::from(mac.to_u64());
    let mut rules = vec![
        (0, dhcp_requests(local)),
        (1, arp(ARP_REPLY, FieldId::EthDst, mac(&local))),
        (2, arp(ARP_REQUEST, FieldId::EthSrc, mac(&local))),
    ];
    for hop in &config.next_hops {
        rules.push((3, arp(ARP_REQUEST, FieldId::EthDst, mac(hop))));
        rules.push((4, arp(ARP_REPLY, FieldId::EthSrc, mac(hop))));
    }
    let addresses: BTreeSet<Ipv4Addr> = config.remotes.iter().map(|r| *r.ip()).collect();
    for address in addresses {
        let value = u128::from(u32::from(address));
        rules.push((5, arp(ARP_REPLY, FieldId::ArpTpa, value)));
        rules.push((6, arp(ARP_REQUEST, FieldId::ArpSpa, value)));
    }
    for remote in &config.remotes {
        rules.push((7, tcp((FieldId::IpDst, *remote.ip()), (FieldId::TcpDst, remote.port()))));
        rules.push((8, tcp((FieldId::IpSrc, *remote.ip()), (FieldId::TcpSrc, remote.port()))));
    }
    rules.into_iter().map(|(kind, m)| (PRIORITY + kind, m)).collect()
}

impl Connmgr {
    /// Sets the remotes to reach through the bridge.
    pub fn set_in_band(&mut self, config: InBandConfig, ctx: &BridgeCtx<'_>, now_ms: u64) {
        self.in_band.config = config;
        self.run_in_band(ctx, now_ms);
    }

    /// Replaces the rules if the remotes or the address of the bridge's device changed.
    pub(super) fn run_in_band(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let in_band = &mut self.in_band;
        if in_band.config.remotes.is_empty() && in_band.installed.is_none() {
            return;
        }
        let Some(bridge) = ctx.bridge_view() else { return };
        // Without a device there is nothing to connect from.
        let local = bridge.ports.port(OfPort::LOCAL).map(|p| p.mac);
        let wanted = local.filter(|_| !in_band.config.remotes.is_empty());
        if in_band.installed.as_ref().map(|i| (&i.config, i.local))
            == wanted.map(|mac| (&in_band.config, mac))
        {
            return;
        }
        let new = wanted.map(|local| {
            let rules = rules(&in_band.config, local);
            Installed { config: in_band.config.clone(), local, rules }
        });
        let old = in_band.installed.as_ref().map(|i| &i.rules[..]).unwrap_or_default();
        let mut actions: Vec<Action> = Vec::new();
        actions.extend(in_band.config.queue.map(|queue| SetQueue(queue).into()));
        actions.push(NORMAL);
        // During a bundle: the next run tries again.
        let changed = ctx.backer.change_tables(ctx.bridge, |tables| {
            for (priority, m) in old {
                tables.remove(TableId(0), &m.into(), *priority);
            }
            for (priority, m) in new.iter().flat_map(|n| &n.rules) {
                tables.insert(Arc::new(own_rule(*priority, m, &actions, now_ms)));
            }
        });
        if changed.is_none() {
            return;
        }
        in_band.installed = new;
        let is_on = in_band.installed.is_some();
        if bridge.in_band != is_on {
            ctx.backer.change_bridge(ctx.bridge, |b| b.in_band = is_on);
        }
    }
}
