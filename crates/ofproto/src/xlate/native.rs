//! Tunnels in user space: outer headers pushed by an action, and translation in the bridge of the route; packets for a
//! tunnel that reach a bridge's own port.

use super::ctx::XlateCtx;
use crate::cache::XlateEffect;
use crate::native::{NativeTunnels, Solicit};
use crate::ports::Port;
use crate::tunnel::{TunnelConfig, TunnelHeaders, Way};
use crate::view::OutDevice;
use dpif::actions::tnl_header::{Encap, IPPROTO_IPIP, IPPROTO_IPV6, OuterIp, TnlHeader};
use dpif::actions::{CloneAction, PopEth, TnlPop, TnlPush, Trunc};
use dpif::{DpAction, Masked, SetAction, XlateDrop};
use flow::{DpPort, Flow, MacAddr, Mask, OfPort, Tunnel, TunnelOptions};
use packet::headers as h;
use routing::{Hop, NoRoute, Query, snoop};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A tunnel output.
pub(super) struct TunnelOutput<'a> {
    pub(super) config: &'a TunnelConfig,
    /// The datapath port of the tunnel.
    pub(super) dp_port: DpPort,
    /// Outer headers, before routing.
    pub(super) outer: Tunnel,
    pub(super) options: TunnelOptions,
    /// Truncate the packet first.
    pub(super) cut: Option<u32>,
    /// Packet type of what the headers are pushed onto.
    pub(super) packet_type: u32,
    /// Pop the Ethernet header first.
    pub(super) pops_eth: bool,
}

fn address(v4: u32, v6: [u8; 16]) -> Option<IpAddr> {
    match (v4, v6) {
        (0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => None,
        (0, v6) => Some(Ipv6Addr::from(v6).into()),
        (v4, _) => Some(Ipv4Addr::from(v4).into()),
    }
}

impl XlateCtx<'_> {
    /// Tunnels in user space, if the datapath has any tunnels.
    pub(super) fn native(&self) -> Option<Arc<NativeTunnels>> {
        self.view.native.clone().filter(|_| !self.view.tunnels.is_empty())
    }

    /// Routes the packet, and continues in the bridge of the route's device.
    pub(super) fn output_to_native_tunnel(&mut self, native: &NativeTunnels, output: &TunnelOutput<'_>) {
        let outer = &output.outer;
        let Some(dst) = address(outer.dst, outer.ipv6_dst) else { return };
        let mark = output.config.egress_pkt_mark.unwrap_or(self.packet.flow.pkt_mark);
        if output.config.egress_pkt_mark.is_some() || native.routes.uses_marks() {
            self.record.wc.0.pkt_mark = u32::MAX;
        }
        let query = Query { mark, dst, src: address(outer.src, outer.ipv6_src) };
        self.record.lookups.route(&query);
        let hop = self.host.route(native, &query);
        if let Err(reason) = hop
            && reason != NoRoute::Missing
        {
            self.record.trace.detail(|| format!("no route to {dst}: {}", routing::text::no_route(reason)));
        }
        let device = hop.as_ref().ok().and_then(|hop| self.view.device(&hop.device));
        let Some((hop, device)) = hop.ok().zip(device) else {
            return self.lose(XlateDrop::TunnelNoRoute, "native tunnel routing failed");
        };
        let next = hop.gateway.unwrap_or(dst);
        self.record.trace.detail(|| format!("tunneling to {next} via {}", device.port.name));
        if device.mac == MacAddr::default() {
            return self.lose(XlateDrop::TunnelNoRoute, "tunnel output device lacks Ethernet address");
        }
        let Some(eth_dst) = self.neighbour(native, &device, &hop, next) else { return };
        let label = output.config.of_kind.srv6.flow_label.of(&self.packet.flow, &mut self.record.wc);
        let way = Way { eth_src: device.mac, eth_dst, source: hop.source, label };
        let source = query.src.unwrap_or(hop.source);
        self.record.trace.detail(|| format!("tunneling from {} {source} to {eth_dst} {next}", device.mac));
        let Some(header) = output.config.header(outer, &output.options, output.packet_type, &way) else {
            return self.record.trace.warning(|| "native tunnel header build failed".to_string());
        };
        self.push_and_continue(&device, output, Arc::new(header), mark);
    }

    /// Sends nothing: the reason of the drop if nothing else is sent.
    fn lose(&mut self, reason: XlateDrop, why: &str) {
        self.out.lost = reason;
        self.record.trace.warning(|| why.to_string());
    }

    /// The Ethernet address of the next hop; requests it if it is unknown.
    fn neighbour(
        &mut self,
        native: &NativeTunnels,
        device: &OutDevice,
        hop: &Hop,
        next: IpAddr,
    ) -> Option<MacAddr> {
        let (table, bridge) = (native.neighbours.clone(), device.bridge_name.clone());
        self.record.lookups.neighbour(device.bridge, next);
        let found = sync::lock(&table).lookup(self.host.now_ms(), &bridge, next);
        if found.is_some() {
            self.record.cache.push(XlateEffect::Neighbour { table, bridge, ip: next });
            return found;
        }
        self.out.lost = XlateDrop::TunnelNoNeighbour;
        let kind = if next.is_ipv4() { "ARP" } else { "ND" };
        self.record
            .trace
            .detail(|| format!("neighbor cache miss for {next} on bridge {bridge}, sending {kind} request"));
        self.record.cache.push(XlateEffect::Unresolved(Arc::new(Solicit {
            bridge: device.bridge,
            port: device.port.of_port,
            mac: device.mac,
            source: hop.asks_from,
            target: next,
        })));
        None
    }

    /// Pushes the headers, and continues with the packet as sent by the device, which has that mark. Later actions of the
    /// callers see none of it.
    fn push_and_continue(
        &mut self,
        device: &OutDevice,
        output: &TunnelOutput<'_>,
        header: Arc<TnlHeader>,
        mark: u32,
    ) {
        let Some(out_port) = device.port.dp_port else {
            return self.lose(XlateDrop::TunnelNoRoute, "native tunnel routing failed");
        };
        let Some(bridge) = self.view.bridge(device.bridge).cloned() else { return };
        if !self.may_copy() {
            return;
        }
        let kept = (
            Box::new(self.packet.flow),
            Box::new(self.packet.base),
            self.packet.conntracked,
            self.packet.was_mpls,
        );
        let (wc, is_last) = (std::mem::replace(&mut self.record.wc, Mask::none()), self.control.is_last);
        let before = std::mem::take(&mut self.out.actions);
        let marks = mark != self.packet.base.pkt_mark;
        self.packet.flow = Flow { pkt_mark: mark, ..outer_flow(&header, output.packet_type) };
        self.packet.base = self.packet.flow;
        if marks {
            self.set(SetAction::SkbMark(Masked { value: mark, mask: u32::MAX }));
        }
        let popped_bytes = if output.pops_eth { h::ETH_HEADER_BYTES as u32 } else { 0 };
        // As on the wire. OVS counts a popped Ethernet header, too.
        let longer_bytes = header.bytes().len() as i64 - i64::from(popped_bytes);
        let cut = output.cut.map(|bytes| DpAction::Trunc(Trunc(bytes.saturating_sub(popped_bytes))));
        self.out.actions.extend(cut);
        if output.pops_eth {
            self.out.actions.push(PopEth.into());
        }
        self.out.actions.push(TnlPush { tnl_port: output.dp_port, out_port, header }.into());
        let pushed = self.out.actions.len();
        self.out.clones += 1;
        self.out.outside += before.len();
        self.control.is_last = true;
        // No rule's match on outer headers compares with those of the packet.
        self.record.lookups.exchanged();
        self.record.cache.push(XlateEffect::Longer(longer_bytes));
        self.continue_in(bridge, device.port.of_port);
        self.record.cache.push(XlateEffect::Longer(-longer_bytes));
        self.control.is_last = is_last;
        self.out.outside -= before.len();
        self.out.clones -= 1;
        let looks_at_mark = std::mem::replace(&mut self.record.wc, wc).0.pkt_mark != 0;
        if looks_at_mark {
            self.record.wc.0.pkt_mark = u32::MAX;
        }
        (self.packet.flow, self.packet.base, self.packet.conntracked, self.packet.was_mpls) =
            (*kept.0, *kept.1, kept.2, kept.3);
        let mut sent = std::mem::replace(&mut self.out.actions, before);
        if sent.len() == pushed {
            sent.clear();
        }
        match is_last {
            true => self.out.actions.append(&mut sent),
            false if sent.is_empty() => {}
            false => self.out.actions.push(DpAction::Clone(CloneAction(sent))),
        }
    }

    /// A packet about to leave by a port: if its device has addresses, pops the headers of a tunnel, or learns a
    /// neighbour. Returns whether it goes on to the tunnel.
    pub(super) fn ends_in_tunnel(&mut self, port: &Port) -> bool {
        let has_addresses = |native: &Arc<NativeTunnels>| native.listeners.device(&port.name).is_some();
        let Some(native) = self.native().filter(has_addresses) else { return false };
        let bridge = self.bridge.clone();
        if let Some(tunnel) = native.listeners.lookup(&self.packet.flow, &mut self.record.wc) {
            let f = &self.packet.flow;
            let src =
                if f.dl_type == h::ETH_TYPE_IP { address(f.nw_src, [0; 16]) } else { address(0, f.ipv6_src) };
            if let Some(ip) = src.filter(|_| self.host.has_effects()) {
                self.host.neighbour_seen(&native, bridge.id, ip, MacAddr(f.dl_src));
            }
            self.out.actions.push(TnlPop(tunnel).into());
            return true;
        }
        let is_own = |ip| native.listeners.holders(ip).any(|name| bridge.ports.by_name(name).is_some());
        if let Some(snooped) = snoop(&self.packet.flow, &mut self.record.wc)
            && (is_gratuitous(&self.packet.flow) || is_own(answered(&self.packet.flow)))
        {
            self.record.cache.push(XlateEffect::Snooped {
                table: native.neighbours.clone(),
                bridge: bridge.name.clone(),
                id: bridge.id,
                ip: snooped.ip,
                mac: snooped.mac,
            });
        }
        false
    }
}

/// Whether an ARP packet announces its sender to all.
fn is_gratuitous(flow: &Flow) -> bool {
    flow.dl_type == h::ETH_TYPE_ARP && flow.nw_src == flow.nw_dst
}

/// The address to which an ARP reply or neighbour advertisement answers.
fn answered(flow: &Flow) -> IpAddr {
    match flow.dl_type {
        h::ETH_TYPE_IPV6 => Ipv6Addr::from(flow.ipv6_dst).into(),
        _ => Ipv4Addr::from(flow.nw_dst).into(),
    }
}

/// The flow of a packet of a type behind these outer headers. Each packet has its own UDP source port, which rules see
/// as 0. The protocol behind extension headers is that of the packet.
fn outer_flow(header: &TnlHeader, inner: u32) -> Flow {
    let fields = header.fields();
    let nw_proto = match (matches!(fields.encap, Encap::Srv6 { .. }), inner as u16 == h::ETH_TYPE_IP) {
        (true, true) => IPPROTO_IPIP,
        (true, false) => IPPROTO_IPV6,
        (false, _) => fields.encap.ip_proto(),
    };
    let mut flow = Flow {
        dl_dst: fields.eth_dst,
        dl_src: fields.eth_src,
        nw_proto,
        tp_dst: fields.encap.udp().map_or(0, |udp| udp.dst),
        actset_output: OfPort::UNSET.0,
        ..Flow::default()
    };
    match fields.ip {
        OuterIp::V4 { src, dst, tos, ttl, .. } => {
            (flow.dl_type, flow.nw_src, flow.nw_dst) = (h::ETH_TYPE_IP, src, dst);
            (flow.nw_tos, flow.nw_ttl) = (tos, ttl);
        }
        OuterIp::V6 { src, dst, label, tclass, hlimit } => {
            (flow.dl_type, flow.ipv6_src, flow.ipv6_dst) = (h::ETH_TYPE_IPV6, src, dst);
            (flow.nw_tos, flow.nw_ttl, flow.ipv6_label) = (tclass, hlimit, label);
        }
    }
    flow
}
