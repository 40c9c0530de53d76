//! Text of cookies of samples.

use crate::actions::prelude::*;
use crate::text::key_parse::port;
use crate::text::values::number;
use crate::upcall::{FlowDirection, FlowSampleCookie, IpfixCookie, SflowCookie};
use flow::DpPort;

/// Bits of a VLAN number in a tag.
const VID: u16 = 0xfff;
/// The bit that a tag has.
const PRESENT: u16 = 0x1000;

pub(super) fn format_sflow(c: &SflowCookie) -> String {
    format!("sFlow(vid={},pcp={},output={}),actions", c.vlan_tci & VID, c.vlan_tci >> 13, c.output)
}

pub(super) fn format_port(port: DpPort, names: &dyn PortNames) -> String {
    names.name(port).unwrap_or_else(|| port.to_string())
}

pub(super) fn format_flow(c: &FlowSampleCookie, names: &dyn PortNames) -> String {
    let direction = match c.direction {
        FlowDirection::ByPort => "",
        FlowDirection::Ingress => ",ingress",
        FlowDirection::Egress => ",egress",
    };
    format!(
        "flow_sample(probability={},collector_set_id={},obs_domain_id={},obs_point_id={},output_port={}{direction})",
        c.probability,
        c.collector_set,
        c.domain,
        c.point,
        format_port(c.output_port, names)
    )
}

pub(super) fn parse_port(field: &Item<'_>, parser: &Parser<'_>) -> Result<DpPort, TextError> {
    port(field.value()?, parser.names).map(DpPort)
}

fn u32_of(field: &Item<'_>) -> Result<u32, TextError> {
    Ok(number(field.value()?, u32::MAX.into())? as u32)
}

pub(super) fn parse_sflow(item: &Item<'_>) -> Result<SflowCookie, TextError> {
    let mut cookie = SflowCookie { vlan_tci: 0, output: 0 };
    for field in item.args()? {
        match field.name {
            "vid" => cookie.vlan_tci |= number(field.value()?, VID.into())? as u16,
            "pcp" => cookie.vlan_tci |= (number(field.value()?, 7)? as u16) << 13,
            "output" => cookie.output = u32_of(field)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    if cookie.vlan_tci != 0 {
        cookie.vlan_tci |= PRESENT;
    }
    Ok(cookie)
}

pub(super) fn parse_ipfix(item: &Item<'_>, parser: &Parser<'_>) -> Result<IpfixCookie, TextError> {
    let mut cookie = IpfixCookie { output_port: DpPort(u32::MAX), tunnel_out: false, bridge: 0 };
    for field in item.args()? {
        match field.name {
            "output_port" => cookie.output_port = parse_port(field, parser)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(cookie)
}

pub(super) fn parse_flow(item: &Item<'_>, parser: &Parser<'_>) -> Result<FlowSampleCookie, TextError> {
    let mut cookie = FlowSampleCookie {
        probability: 0,
        collector_set: 0,
        domain: 0,
        point: 0,
        output_port: DpPort(u32::MAX),
        tunnel_out: false,
        direction: FlowDirection::ByPort,
        bridge: 0,
    };
    for field in item.args()? {
        match field.name {
            "probability" => cookie.probability = number(field.value()?, u16::MAX.into())? as u16,
            "collector_set_id" => cookie.collector_set = u32_of(field)?,
            "obs_domain_id" => cookie.domain = u32_of(field)?,
            "obs_point_id" => cookie.point = u32_of(field)?,
            "output_port" => cookie.output_port = parse_port(field, parser)?,
            "ingress" => cookie.direction = FlowDirection::Ingress,
            "egress" => cookie.direction = FlowDirection::Egress,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(cookie)
}
