//! Output: reserved ports, physical ports, patch ports.

use super::ctx::XlateCtx;
use super::ctx::entry;
use super::encap::ETHERTYPES;
use super::native::TunnelOutput;
use crate::cache::XlateEffect;
use crate::ids::BridgeId;
use crate::packet_state::PacketState;
use crate::ports::Port;
use crate::tunnel::{PacketTypes, TunnelConfig, TunnelHeaders};
use crate::view::BridgeView;
use dpif::actions::{Output, Trunc};
use dpif::{DpAction, SetAction, TunnelKind};
use flow::fields::FieldId;
use flow::text::{NoPortNames, format_port};
use flow::{DpPort, Flow, OfPort, OuterHeaders, TableId, TunMetadata, Tunnel, TunnelOptions, Wide};
use ofp_actions::ControllerAction;
use packet::headers as h;
use std::sync::Arc;
use telemetry::netflow;

/// Bits of congestion notification in the octet with the DSCP.
const ECN_MASK: u8 = 3;

impl XlateCtx<'_> {
    /// The output action to any port.
    pub(super) fn send(&mut self, port: OfPort, max_len_bytes: u16) {
        match port {
            OfPort::IN_PORT => self.send_to(self.packet.flow.in_port()),
            OfPort::TABLE if self.control.in_packet_out => {
                self.resubmit_to(TableId(0), self.packet.flow.in_port(), true)
            }
            OfPort::TABLE | OfPort::NONE => {}
            OfPort::NORMAL => self.normal(),
            OfPort::FLOOD => self.flood(false),
            OfPort::ALL => self.flood(true),
            OfPort::CONTROLLER => {
                let reason = self.reason_of_output();
                self.send_to_controllers(&ControllerAction {
                    reason,
                    ..ControllerAction::plain(max_len_bytes)
                });
            }
            port if port == self.packet.flow.in_port() => {
                self.record.trace.warning(|| "skipping output to input port".to_string());
            }
            port => self.send_to(port),
        }
    }

    /// Sends the first bytes of the packet out of a datapath port of this bridge.
    pub(super) fn send_truncated(&mut self, port: OfPort, max_len_bytes: u32) {
        if port == self.packet.flow.in_port() {
            return self.record.trace.warning(|| "skipping output to input port".to_string());
        }
        // As in OVS, a port without a device, `IN_PORT` included, is called a patch port.
        if self.bridge.ports.port(port).is_none_or(|p| p.dp_port.is_none()) {
            let name = format_port(port, &NoPortNames);
            return self.record.trace.error(|| format!("output_trunc does not support patch port {name}"));
        }
        if self.native().is_some() && self.bridge.ports.port(port).is_some_and(|p| p.tunnel.is_some()) {
            // Its headers are not truncated.
            self.out.tunnel_cut = Some(max_len_bytes);
            self.send_to(port);
            self.out.tunnel_cut = None;
            return;
        }
        let trunc = DpAction::Trunc(Trunc(max_len_bytes));
        self.out.actions.push(trunc.clone());
        self.send_to(port);
        // It must not truncate the packet of a later output.
        if self.out.actions.last() == Some(&trunc) {
            self.out.actions.pop();
        }
    }

    fn flood(&mut self, all: bool) {
        let bridge = self.bridge.clone();
        let in_port = self.packet.flow.in_port();
        let ports = bridge.ports.flood_order();
        self.send_to_each(
            ports.filter(|p| p.of_port != in_port && (all || !p.config.no_flood)),
            |cx, port| {
                cx.send_to(port.of_port);
            },
        );
        self.out.netflow = netflow::output::FLOOD;
    }

    /// Sends the packet to each of several receivers, of which the last may be the final output.
    pub(super) fn send_to_each<T>(
        &mut self,
        receivers: impl Iterator<Item = T>,
        mut send: impl FnMut(&mut Self, T),
    ) {
        let is_last = self.control.is_last;
        let mut receivers = receivers.peekable();
        while let Some(receiver) = receivers.next() {
            self.control.is_last = is_last && receivers.peek().is_none();
            send(self, receiver);
        }
        self.control.is_last = is_last;
    }

    /// Sends the current packet out of a port of this bridge.
    pub(super) fn send_to(&mut self, of_port: OfPort) {
        let bond = self.out.bond.take();
        let bridge = self.bridge.clone();
        let Some(port) = bridge.ports.port(of_port) else {
            return self.record.trace.warning(|| "Nonexistent output port".to_string());
        };
        if port.config.no_fwd {
            return self.record.trace.detail(|| "OFPPC_NO_FWD set, skipping output".to_string());
        }
        if self.out.snaplen.is_some() && port.dp_port.is_none() {
            return self.record.trace.warning(|| "Mirror truncate to ODPP_NONE, skipping output".to_string());
        }
        if self.is_between_protected(port) {
            return self
                .record
                .trace
                .warning(|| "Flow is between protected ports, skipping output.".to_string());
        }
        if !self.links_forward(port) {
            return;
        }
        if let Some((peer_bridge, peer_port)) = port.patch_peer {
            return self.cross_patch(port, peer_bridge, peer_port);
        }
        let packet_types = port.tunnel.as_ref().map_or(PacketTypes::Frames, |t| t.of_kind.packet_types);
        if self.packet.flow.packet_type != 0 && packet_types == PacketTypes::Frames {
            let why = "Trying to send non-Ethernet packet through legacy L2 port. Dropping packet.";
            return self.record.trace.warning(|| why.to_string());
        }
        let Some(dp_port) = port.dp_port else {
            return self.record.trace.warning(|| format!("port {of_port} has no device, skipping output"));
        };
        let marked = self.mark_queue(port);
        // Copies of mirrors may follow.
        let is_last = self.control.is_last;
        self.control.is_last &= bridge.mirrors.is_none();
        let sends = match &port.tunnel {
            Some(tunnel) => self.output_to_tunnel(port, tunnel, dp_port),
            None => {
                self.commit();
                match bond {
                    Some(bond) => self.output_hashed(bond),
                    None if self.ends_in_tunnel(port) => {}
                    None => {
                        self.sample_for_bridge(dp_port);
                        self.push_output(dp_port);
                    }
                }
                true
            }
        };
        self.control.is_last = is_last;
        self.packet.flow.nw_tos = marked.unwrap_or(self.packet.flow.nw_tos);
        if sends {
            self.out.netflow = of_port.0 as u16;
            self.mirror_sent(port);
        }
    }

    /// Gives the packet the DSCP of its queue of that port. Returns the octet from before, if it has one.
    fn mark_queue(&mut self, port: &Port) -> Option<u8> {
        if port.queue_dscp.is_empty() {
            return None;
        }
        self.record.wc.0.skb_priority = u32::MAX;
        let flow = &mut self.packet.flow;
        let queue = self.host.capabilities().queue_of_priority(flow.skb_priority)?;
        let dscp = port.queue_dscp.get(&queue)?;
        if !matches!(flow.dl_type, h::ETH_TYPE_IP | h::ETH_TYPE_IPV6) {
            return None;
        }
        self.record.wc.0.nw_tos |= !ECN_MASK;
        let marked = flow.nw_tos & ECN_MASK | dscp << 2;
        Some(std::mem::replace(&mut flow.nw_tos, marked))
    }

    /// Whether the packet would go from one protected port to another, or back.
    fn is_between_protected(&self, port: &Port) -> bool {
        let ports = &self.bridge.ports;
        ports.bundles.get(&port.bundle).is_some_and(|output| output.protected)
            && ports.bundle_of(self.packet.flow.in_port()).is_some_and(|input| input.protected)
    }

    /// Sends the current packet through a tunnel; the datapath port encapsulates it, or an action does. Returns whether the
    /// tunnel takes it.
    fn output_to_tunnel(&mut self, port: &Port, config: &TunnelConfig, dp_port: DpPort) -> bool {
        let Some(outer) = config.wrap(&self.packet.flow, &mut self.record.wc) else {
            self.record.trace.warning(|| "Not tunneling to our own address".to_string());
            return false;
        };
        let received = self.packet.original.tunnel();
        if received.is_some() && (outer.dst, outer.ipv6_dst) == (received.dst, received.ipv6_dst) {
            self.record.trace.warning(|| "Not tunneling to our own address".to_string());
            return false;
        }
        self.record.cache.push(XlateEffect::Sent(port.counters.clone()));
        if let Some(native) = self.native() {
            self.record.trace.detail(|| "output to native tunnel".to_string());
            self.commit();
            let mut options = TunnelOptions::default();
            if config.kind == TunnelKind::Geneve {
                let mut sent = Flow::default();
                sent.set_tun_options(self.sent_metadata().as_ref());
                options = self.bridge.tables.tlv().encode(&sent);
            }
            let cut = self.out.tunnel_cut.take();
            let pops_eth =
                self.packet.flow.packet_type == 0 && config.of_kind.packet_types == PacketTypes::Bare;
            if pops_eth && self.packet.flow.vlans[0].is_present() {
                self.record
                    .trace
                    .warning(|| "packets with a VLAN tag have no place in this tunnel".to_string());
                return false;
            }
            let packet_type = match pops_eth {
                true => ETHERTYPES << 16 | u32::from(self.packet.flow.dl_type),
                false => self.packet.flow.packet_type,
            };
            let output = TunnelOutput { config, dp_port, outer, options, cut, packet_type, pops_eth };
            self.output_to_native_tunnel(&native, &output);
            return true;
        }
        self.record.trace.detail(|| "output to kernel tunnel".to_string());
        let mark = self.packet.flow.pkt_mark;
        if let Some(egress) = config.egress_pkt_mark {
            self.packet.flow.pkt_mark = egress;
            self.record.wc.0.pkt_mark = u32::MAX;
        }
        self.commit();
        self.packet.flow.pkt_mark = mark;
        self.set_tunnel(config, outer);
        self.sample_for_bridge(dp_port);
        self.push_output(dp_port);
        true
    }

    /// Sets outer headers for a datapath port that encapsulates, unless the packet has them.
    pub(super) fn set_tunnel(&mut self, config: &TunnelConfig, outer: Tunnel) {
        let sent = if config.kind == TunnelKind::Geneve { self.sent_metadata() } else { None };
        if self.packet.base.tunnel() != outer || self.packet.base.tun_options() != sent {
            self.packet.base.set_tunnel(&outer);
            self.packet.base.set_tun_options(sent.as_ref());
            let options = self.bridge.tables.tlv().encode(&self.packet.base);
            self.out
                .actions
                .push(SetAction::Tunnel(Box::new(OuterHeaders { tunnel: outer, options })).into());
        }
    }

    /// The tunnel metadata of the packet. Metadata that it came with is examined.
    fn sent_metadata(&mut self) -> Option<TunMetadata> {
        let tlv = self.bridge.tables.tlv().clone();
        if self.packet.original.tunnel().is_some() {
            for (field, mapping) in tlv.iter().filter_map(|(i, m)| Some((FieldId::tun_metadata(i)?, m))) {
                tlv.add_mask(field, &mut self.record.wc.0, Wide::ones(mapping.len_bits().into()));
            }
        }
        self.packet.flow.tun_options()
    }

    /// Continues in the bridge at the other end of a patch port, within this translation.
    fn cross_patch(&mut self, port: &Arc<Port>, peer_bridge: BridgeId, peer_port: OfPort) {
        let Some(bridge) = self.view.bridge(peer_bridge).cloned() else { return };
        let Some(peer) = bridge.ports.port(peer_port).cloned() else { return };
        if self.claims(&peer) {
            self.record.trace.push(entry, &*bridge);
            self.record.trace.pop();
            self.record.cache.push(XlateEffect::Sent(port.counters.clone()));
            return self.received_by(&peer);
        }
        if !self.may_receive(peer.config) {
            return self.record.trace.warning(|| format!("patch port {} does not receive", peer.name));
        }
        self.record.cache.push(XlateEffect::Sent(port.counters.clone()));
        self.received_by(&peer);
        // The rules here continue with their packet; the peer's changes of the datapath's packet stay in the base
        // flow, so the next output undoes them.
        let saved_flow = self.packet.flow;
        self.continue_in(bridge, peer_port);
        self.packet.flow = saved_flow;
    }

    /// Continues in another bridge, as received from that port. The flow changes.
    pub(super) fn continue_in(&mut self, bridge: Arc<BridgeView>, in_port: OfPort) {
        let examined = self.record.wc.0.tun_options();
        self.control.crossed.push((bridge.id, in_port));
        let saved_bridge = std::mem::replace(&mut self.bridge, bridge);
        let saved_ingress = std::mem::replace(&mut self.packet.ingress, in_port);
        let saved_set = std::mem::take(&mut self.packet.action_set);
        let saved_stack = std::mem::take(&mut self.packet.stack);
        let saved_mirrors = std::mem::take(&mut self.packet.mirrors);
        // As in OVS, a patch port takes no tunnel fields along.
        PacketState::received_by(in_port).restore(&mut self.packet.flow);
        // The output of an action set counts as such in the peer, too, as in OVS.
        let in_packet_out = std::mem::take(&mut self.control.in_packet_out);
        self.record.trace.push(entry, &*self.bridge);
        self.in_peer_bridge();
        self.record.trace.pop();
        self.control.in_packet_out = in_packet_out;
        self.packet.action_set = saved_set;
        self.packet.stack = saved_stack;
        self.packet.mirrors = saved_mirrors;
        (self.bridge, self.packet.ingress) = (saved_bridge, saved_ingress);
        self.control.crossed.pop();
        self.record.wc.0.set_tun_options(examined.as_ref());
    }

    /// In-band control: sends a DHCP reply to the bridge's device, whatever the rules.
    pub(super) fn deliver_dhcp_reply(&mut self) {
        let flow = &self.packet.flow;
        if !self.bridge.in_band
            || self.has_failed()
            || self.control.frozen.is_some()
            || flow.dl_type != h::ETH_TYPE_IP
        {
            return;
        }
        let wc = &mut self.record.wc.0;
        wc.nw_proto = u8::MAX;
        if flow.nw_proto != h::IPPROTO_UDP {
            return;
        }
        // One bit tells another port: the flows of most ports stay wide.
        let differing = flow.tp_src ^ h::DHCP_SERVER_PORT;
        wc.tp_src |= differing.checked_ilog2().map_or(u16::MAX, |bit| 1 << bit);
        if differing != 0 {
            return;
        }
        wc.tp_dst = u16::MAX;
        let local = self.bridge.ports.port(OfPort::LOCAL).and_then(|p| p.dp_port);
        let sent = local.is_none_or(|port| self.out.actions.contains(&Output(port).into()));
        if flow.tp_dst == h::DHCP_CLIENT_PORT && !sent {
            self.record
                .trace
                .detail(|| "outputting DHCP packet to local port for in-band control".to_string());
            self.send_to(OfPort::LOCAL);
        }
    }
}
