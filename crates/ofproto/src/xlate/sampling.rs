//! Actions that sample: for sFlow and IPFIX of a bridge, and by `sample`.

use super::ctx::XlateCtx;
use crate::ports::Port;
use crate::sampling::{Sampling, is_sampling, outputs};
use crate::tunnel::TunnelHeaders;
use dpif::actions::{DropAction, Meter, Psample, Sample, Userspace};
use dpif::{DpAction, FlowDirection, FlowSampleCookie, IpfixCookie, SflowCookie, UserCookie};
use flow::{DpPort, OfPort};
use ofp_actions::{SampleDirection, SampleFlow, SampleId};
use openflow::msg::meter;

/// Output of sFlow: the packet is dropped, for no known reason.
const DROPPED: u32 = 0x4000_0000 | 256;
/// Output of sFlow: this many ports.
const SEVERAL: u32 = 0x8000_0000;

impl XlateCtx<'_> {
    /// A packet enters the first bridge. Packets that sessions of the switch claim, and those of a port that mirrors use,
    /// are not sampled.
    pub(super) fn sample_received(&mut self, port: Option<&Port>) {
        let Some(sampling) = self.bridge.sampling.clone() else { return };
        if self.packet.flow.in_port() == OfPort::NONE || self.takes_only_copies(port) {
            return;
        }
        if let Some(probability) = sampling.sflow {
            // Tag and output are known at the end.
            self.push_sample(probability, UserCookie::Sflow(SflowCookie { vlan_tci: 0, output: 0 }));
        }
        self.sample_for_bridge(DpPort::NONE);
    }

    /// The packet leaves by that port, or enters the bridge.
    pub(super) fn sample_for_bridge(&mut self, output_port: DpPort) {
        let Some(sampling) = &self.bridge.sampling else { return };
        let Some(ipfix) = sampling.ipfix else { return };
        let wanted = if output_port == DpPort::NONE { ipfix.input } else { ipfix.output };
        if wanted && self.packet.flow.in_port() != OfPort::NONE {
            let tunnel_out = ipfix.tunnels && sampling.shows_tunnel(output_port);
            let cookie = IpfixCookie { output_port, tunnel_out, bridge: self.bridge.id.0 };
            self.push_sample(ipfix.probability, UserCookie::Ipfix(cookie));
        }
    }

    /// The action `sample`: a copy for local readers if its set has a group and the datapath has `psample`, and one for the
    /// slow path if the bridge has collectors of IPFIX.
    pub(super) fn sample_by_rule(&mut self, sample: &SampleFlow) {
        let Some(sampling) = self.bridge.sampling.clone() else { return };
        let group = sampling.local_groups.get(&sample.collector_set).copied();
        let group = group.filter(|_| self.host.capabilities().psample);
        if !sampling.flows && group.is_none() {
            return;
        }
        let [domain, point] = [sample.domain, sample.point].map(|id| match id {
            SampleId::Number(n) => n,
            SampleId::Field(field) => {
                let tlv = self.bridge.tables.tlv();
                field.add_wide_mask(tlv, &mut self.record.wc.0);
                let value = field.get_wide(tlv, &self.packet.flow).to_be_bytes(4);
                value.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))
            }
        });
        let local = group.map(|group| {
            let cookie = [domain.to_be_bytes(), point.to_be_bytes()].concat().into();
            Psample { group, cookie }
        });
        let output_port = self.sampled_output(sample);
        let cookie = output_port.filter(|_| sampling.flows);
        if cookie.is_none() && local.is_none() {
            return;
        }
        self.commit();
        let tunnel_out = cookie.is_some_and(|port| self.set_sampled_tunnel(sample, &sampling, port));
        let cookie = cookie.map(|output_port| FlowSampleCookie {
            probability: sample.probability,
            collector_set: sample.collector_set,
            domain,
            point,
            output_port,
            tunnel_out,
            direction: match sample.direction {
                SampleDirection::ByPort => FlowDirection::ByPort,
                SampleDirection::Ingress => FlowDirection::Ingress,
                SampleDirection::Egress => FlowDirection::Egress,
            },
            bridge: self.bridge.id.0,
        });
        let probability = u32::from(sample.probability);
        self.push_samples(probability << 16 | probability, local, cookie.map(UserCookie::FlowSample));
    }

    /// The datapath port by which a packet of the action `sample` leaves; `NONE`: it enters. `None`: the port is unknown.
    fn sampled_output(&mut self, sample: &SampleFlow) -> Option<DpPort> {
        if sample.port == OfPort::NONE || sample.port == self.packet.flow.in_port() {
            return Some(DpPort::NONE);
        }
        let output_port = self.bridge.ports.port(sample.port).and_then(|port| port.dp_port);
        if output_port.is_none() {
            let number = sample.port.0 as u16;
            self.record.trace.error(|| format!("can't use unknown port {number} in flow sample action"));
        }
        output_port
    }

    /// Sets the outer headers of the tunnel that the action `sample` names, if records show them: a datapath that
    /// encapsulates by its ports completes and reports them.
    fn set_sampled_tunnel(&mut self, sample: &SampleFlow, sampling: &Sampling, output_port: DpPort) -> bool {
        if !sampling.tunnel_sets.contains(&sample.collector_set) || !sampling.shows_tunnel(output_port) {
            return false;
        }
        let bridge = self.bridge.clone();
        let config = bridge.ports.port(sample.port).and_then(|port| port.tunnel.as_ref());
        if let Some(config) = config.filter(|_| self.native().is_none())
            && let Some(outer) = config.wrap(&self.packet.flow, &mut self.record.wc)
        {
            self.set_tunnel(config, outer);
        }
        true
    }

    /// Sends up that part of the packets, limited by the meter of the slow path.
    fn push_sample(&mut self, probability: u32, cookie: UserCookie) {
        self.push_samples(probability, None, Some(cookie));
    }

    /// Samples that part of the packets: for local readers, and up, where the meter of the slow path limits them.
    fn push_samples(&mut self, probability: u32, local: Option<Psample>, cookie: Option<UserCookie>) {
        let meter = cookie.and_then(|_| {
            self.record.lookups.meter(self.bridge.id, meter::SLOW_PATH);
            self.bridge.meters.get(&meter::SLOW_PATH).copied()
        });
        let local = local.map(DpAction::from);
        let up = cookie.map(|cookie| DpAction::from(Userspace(cookie)));
        let is_whole = probability == u32::MAX && meter.is_none();
        let meter = meter.map(|id| DpAction::from(Meter(id)));
        let actions = local.into_iter().chain(meter).chain(up);
        if is_whole {
            self.out.actions.extend(actions);
        } else {
            self.out.actions.push(DpAction::Sample(Sample { probability, actions: actions.collect() }));
        }
    }

    /// The end: the sample for sFlow, which is the first action, gets the tag and the output of the packet; a list that only
    /// samples may need a drop.
    pub(super) fn finish_samples(&mut self) {
        let Some(sampling) = self.bridge.sampling.clone() else { return };
        if self.out.actions.iter().all(is_sampling) && sampling.explicit_drops {
            self.out.actions.push(DropAction(self.out.lost).into());
        }
        let output = match outputs(&self.out.actions) {
            (0, _) => DROPPED,
            (count, last) => {
                let port = last.filter(|_| count == 1).and_then(|port| sampling.ports.get(&port));
                port.map(|port| port.ifindex).filter(|index| *index != 0).unwrap_or(SEVERAL | count)
            }
        };
        let vlan_tci = self.packet.base.vlans[0].tci;
        let Some(first) = self.out.actions.first_mut() else { return };
        let up = if let DpAction::Sample(sample) = first { sample.actions.last_mut() } else { Some(first) };
        if let Some(DpAction::Userspace(Userspace(UserCookie::Sflow(cookie)))) = up {
            *cookie = SflowCookie { vlan_tci, output };
        }
    }
}
