//! Targets for fuzzing: a frame through the engines.

use crate::ipfix::{Direction, Exporter, Interface, Record, Settings};
use crate::sflow::{Agent, FlowSample};
use crate::{DATAGRAM_MAX_BYTES, sflow};
use flow::extract::{Metadata, extract};
use flow::{FlowKey, OfPort};
use std::net::{IpAddr, Ipv4Addr};

/// Samples a frame for both engines: no panic; lengths in the datagrams agree with their bytes.
pub fn sampled_frame(frame: &[u8]) {
    let mut key = FlowKey::default();
    extract(frame, &Metadata::default(), 2, &mut key);
    let flow = key.to_flow(OfPort(1));
    let mut sent = Vec::new();
    let agent = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let settings = sflow::Settings { agent, sub_id: 0, sampling: 1, header_bytes: 128 };
    let mut agent = Agent::new(settings, 0);
    let frame_bytes = frame.len() as u32;
    let labels = &flow.mpls_lse;
    agent.flow(&FlowSample { frame, frame_bytes, mpls_out: labels, ..FlowSample::default() }, 0, &mut sent);
    agent.flush(0, &mut sent);
    assert!(sent.iter().all(|d| d.len() <= DATAGRAM_MAX_BYTES && d.len() % 4 == 0));
    sent.clear();
    let mut exporter = Exporter::new(Settings::default());
    let interface = Interface::default();
    for direction in [Direction::Ingress, Direction::Egress] {
        let record = Record {
            flow: &flow,
            frame_bytes,
            packets: 1,
            domain: 0,
            point: 0,
            direction,
            ingress: Some(&interface),
            egress: None,
            tunnel: None,
            is_dropped: false,
        };
        exporter.sample(&record, 1, &mut sent);
    }
    exporter.end(2, &mut sent);
    for datagram in &sent {
        let length = usize::from(datagram[2]) << 8 | usize::from(datagram[3]);
        assert_eq!(length, datagram.len());
    }
}
