//! Sampled packets, on their way to the exporters.

use super::release_after_use;
use crate::backer::Backer;
use crate::ids::BridgeId;
use crate::sampling::{FRAME_MAX_BYTES, Sampled, SampledPath};
use crate::view::View;
use crate::xlate::{Request, Start, translate};
use dpif::{FlowSampleCookie, IpfixCookie, Upcall, UserCookie};
use flow::{DpPort, OfPort};

/// Hands a sampled packet to the exporters, with the path that its actions take. The path comes from a translation without
/// effects. A packet that is sampled as it leaves has one output.
pub(super) fn sampled(backer: &Backer, view: &View, upcall: &Upcall, cookie: UserCookie, now_ms: u64) {
    let Some(sink) = &backer.samples else { return };
    let receiver = backer.receiver(view, &upcall.key);
    let (number, leaves_by) = match cookie {
        UserCookie::Ipfix(IpfixCookie { bridge, output_port, .. })
        | UserCookie::FlowSample(FlowSampleCookie { bridge, output_port, .. }) => (bridge, output_port),
        UserCookie::Sflow(_) | UserCookie::SlowPath { .. } | UserCookie::Controller(_) => (0, DpPort::NONE),
    };
    let own = receiver.map(|(bridge, _)| bridge);
    let Some(bridge) = view.bridge(BridgeId(number)).or(own) else { return };
    let Some(sampling) = &bridge.sampling else { return };
    let of_port = receiver.map_or(OfPort::NONE, |(_, port)| port);
    let flow = match own.map(|own| own.flow_of(&upcall.key, of_port)) {
        Some(Ok(flow)) => flow,
        Some(Err(_)) | None => upcall.key.to_flow(of_port),
    };
    let mut path = SampledPath::default();
    if leaves_by != DpPort::NONE {
        (path.has_output, path.port) = (true, Some(leaves_by));
        path.tunnel = upcall.tunnel_out.as_deref().map(|tunnel| (*tunnel, 0));
    } else if let Some(own) = own {
        let request = Request { view, bridge: own.id, flow: &flow, start: Start::Tables, trace: false };
        let t = translate(&request, &mut backer.xlate_host(false, now_ms));
        path = SampledPath::of(&flow, &t.actions);
        release_after_use(backer, &t);
    }
    let data = upcall.packet.data();
    sink.sampled(Sampled {
        bridge: bridge.id,
        sampling: sampling.clone(),
        cookie,
        frame: data[..data.len().min(FRAME_MAX_BYTES)].into(),
        frame_bytes: data.len() as u32,
        flow: Box::new(flow),
        in_port: upcall.key.in_port(),
        path,
    });
}
