//! Samples and counters of the switch as the engines take them.

use dpif::{FlowDirection, FlowSampleCookie, IpfixCookie, PortStats, SflowCookie};
use flow::{DpPort, Tunnel};
use l2proto::lacp::MemberFacts;
use ofproto::ports::Port;
use ofproto::sampling::{Sampled, SampledPort, TunnelFacts};
use telemetry::ipfix::{Direction, Interface, Record};
use telemetry::sflow::{FlowSample, PortCounters};
use telemetry::{ipfix, sflow};

/// Speed of an interface that tells none, as in stock switches.
const USUAL_SPEED_BPS: u64 = 100_000_000;

fn sflow_tunnel(tunnel: &Tunnel, protocol: u8) -> sflow::Tunnel {
    sflow::Tunnel {
        protocol,
        tos: tunnel.tos,
        src: tunnel.src,
        dst: tunnel.dst,
        src_port: tunnel.tp_src,
        dst_port: tunnel.tp_dst,
        vni: tunnel.id,
    }
}

/// The number of outputs that an output of sFlow says.
fn outputs(output: u32) -> u32 {
    match (output >> 30, output & 0x3fff_ffff) {
        (0, port) => port.min(1),
        (2, count) => count,
        _ => 0,
    }
}

/// A sample for sFlow. `labels` gets the labels that it leaves with.
pub(super) fn flow_sample<'a>(
    s: &'a Sampled,
    cookie: SflowCookie,
    labels: &'a mut Vec<u32>,
) -> FlowSample<'a> {
    let ports = &s.sampling.ports;
    let in_port = ports.get(&s.in_port);
    let protocol_of =
        |port: Option<&SampledPort>| port.and_then(SampledPort::tunnel).map_or(0, |tunnel| tunnel.protocol);
    let received = s.flow.tunnel();
    let tunnel_in = (received.dst != 0).then(|| sflow_tunnel(&received, protocol_of(in_port)));
    let is_single = outputs(cookie.output) == 1;
    let tunnel_out = s.path.tunnel.filter(|_| is_single).map(|(tunnel, protocol)| {
        let by_port = || protocol_of(s.path.port.and_then(|port| ports.get(&port)));
        sflow_tunnel(&tunnel, if protocol == 0 { by_port() } else { protocol })
    });
    if is_single {
        labels.extend(s.path.labels.iter().flatten().rev());
    }
    FlowSample {
        frame: &s.frame,
        frame_bytes: s.frame_bytes,
        input: in_port.map_or(0, |port| port.ifindex),
        output: cookie.output,
        src_tci: s.flow.vlans[0].tci,
        dst_tci: cookie.vlan_tci,
        tunnel_in,
        tunnel_out,
        mpls_out: labels,
    }
}

/// Interfaces of a record.
pub(super) struct Ends {
    ingress: Option<Interface>,
    egress: Option<Interface>,
}

impl Ends {
    pub(super) fn of(s: &Sampled, output_port: DpPort) -> Ends {
        let interface = |port: DpPort| {
            let port = s.sampling.ports.get(&port)?;
            Some(Interface { index: port.ifindex, name: port.name.clone(), ..Interface::default() })
        };
        Ends { ingress: interface(s.in_port), egress: interface(output_port) }
    }
}

/// The numbers that a sample has in its record.
#[derive(Clone, Copy)]
pub(super) struct Selection {
    packets: u64,
    domain: u32,
    point: u32,
    output_port: DpPort,
    direction: FlowDirection,
}

impl Selection {
    /// A bridge samples one packet of this many.
    pub(super) fn of_bridge(cookie: IpfixCookie, sampling: u32, domain: u32, point: u32) -> Selection {
        let (packets, direction) = (u64::from(sampling.max(1)), FlowDirection::ByPort);
        Selection { packets, domain, point, output_port: cookie.output_port, direction }
    }

    /// The action `sample` selects.
    pub(super) fn of_rule(cookie: FlowSampleCookie) -> Selection {
        Selection {
            packets: u64::from(u16::MAX / cookie.probability.max(1)),
            domain: cookie.domain,
            point: cookie.point,
            output_port: cookie.output_port,
            direction: cookie.direction,
        }
    }

    pub(super) fn output_port(&self) -> DpPort {
        self.output_port
    }

    /// The record of a sample.
    pub(super) fn record<'a>(&self, s: &'a Sampled, ends: &'a Ends, tunnels: bool) -> Record<'a> {
        let enters = self.output_port == DpPort::NONE;
        let direction = match self.direction {
            FlowDirection::Ingress => Direction::Ingress,
            FlowDirection::Egress => Direction::Egress,
            FlowDirection::ByPort if enters => Direction::Ingress,
            FlowDirection::ByPort => Direction::Egress,
        };
        let headers = match enters {
            true => s.flow.tunnel(),
            false => s.path.tunnel.map_or_else(Tunnel::default, |(tunnel, _)| tunnel),
        };
        let port = if enters { s.in_port } else { self.output_port };
        let kind =
            s.sampling.ports.get(&port).and_then(SampledPort::tunnel).filter(|_| tunnels && headers.dst != 0);
        let tunnel = kind.map(|TunnelFacts { ipfix_kind, protocol, key_bytes }| ipfix::Tunnel {
            kind: ipfix_kind,
            protocol,
            src: headers.src,
            dst: headers.dst,
            src_port: headers.tp_src,
            dst_port: headers.tp_dst,
            key: headers.id,
            key_bytes,
        });
        Record {
            flow: &s.flow,
            frame_bytes: s.frame_bytes,
            packets: self.packets,
            domain: self.domain,
            point: self.point,
            direction,
            ingress: ends.ingress.as_ref(),
            egress: ends.egress.as_ref(),
            tunnel,
            is_dropped: !s.path.has_output,
        }
    }
}

/// Counters of an interface for sFlow.
pub(super) fn port_counters(
    shown: &SampledPort,
    port: Option<&Port>,
    member: Option<&MemberFacts>,
    stats: &PortStats,
    datapath_id: u64,
) -> PortCounters {
    let device = stats.device;
    let of_device = |read: fn(&dpif::DeviceStats) -> u64| device.as_ref().map_or(u64::MAX, read);
    let multicast = of_device(|d| d.rx_multicast);
    let ethernet = [of_device(|d| d.rx_frame), of_device(|d| d.rx_crc), of_device(|d| d.rx_over)];
    let s = (*stats).with_device();
    let speed_mbps = port.map_or(0, |port| port.features.speed_mbps);
    let is_full = port.is_some_and(|port| port.features.is_full_duplex());
    let is_up = port.is_some_and(|port| !port.config.port_down);
    let has_link = is_up && port.is_some_and(|port| !port.link_down);
    PortCounters {
        ifindex: shown.ifindex,
        speed_bps: if speed_mbps == 0 { USUAL_SPEED_BPS } else { u64::from(speed_mbps) * 1_000_000 },
        direction: match (speed_mbps, is_full) {
            (0, _) => 0,
            (_, true) => 1,
            (_, false) => 2,
        },
        status: u32::from(is_up) | u32::from(has_link) << 1,
        received: [s.rx_bytes, s.rx_packets, multicast, u64::MAX, s.rx_dropped, s.rx_errors],
        sent: [s.tx_bytes, s.tx_packets, u64::MAX, u64::MAX, s.tx_dropped, s.tx_errors],
        ethernet,
        name: shown.name.clone(),
        datapath_id,
        of_port: shown.of_port.0,
        lacp: member.map(lacp),
    }
}

/// Counters of a member of an aggregate for sFlow. The state that the partner's settings ask for is unknown: 0, as in OVS.
fn lacp(member: &MemberFacts) -> sflow::Lacp {
    let counters = member.counters;
    sflow::Lacp {
        actor: member.actor.0,
        partner: member.partner.0,
        aggregate: member.aggregate.into(),
        states: [member.actor_admin_state, member.actor_state, 0, member.partner_state],
        messages: [counters.received, counters.bad, counters.sent],
    }
}
