//! Text of a packet: its fields as a flow, and the checksum of its transport header.

use super::{PortNames, format_flow_with};
use crate::extract::{Layout, Metadata, extract_typed};
use crate::{FlowKey, OfPort};

/// VLAN tags that the text of a packet shows.
const VLANS: u8 = 2;

/// The fields of a packet that begins as its packet type tells, and the checksum of its transport header.
pub fn format_packet(packet: &[u8], packet_type: u32, names: &dyn PortNames) -> String {
    let mut key = FlowKey::default();
    let layout = extract_typed(packet, packet_type, &Metadata::default(), VLANS, &mut key);
    let flow = key.to_flow(OfPort(0));
    let text = format_flow_with(&flow, names);
    let out = text.split(',').filter(|word| *word != "in_port=0").collect::<Vec<_>>().join(",");
    let l4 = match layout.l4 {
        Layout::NONE => return out,
        at => packet.get(usize::from(at)..).unwrap_or_default(),
    };
    let (name, checksum) = match flow.nw_proto {
        6 => ("tcp", l4.get(16..18)),
        17 => ("udp", l4.get(6..8)),
        132 => ("sctp", l4.get(8..12)),
        1 if flow.dl_type == 0x800 => ("icmp", l4.get(2..4)),
        58 if flow.dl_type == 0x86dd => ("icmp6", l4.get(2..4)),
        _ => ("", None),
    };
    match checksum {
        None => out,
        Some(bytes) => {
            let value = bytes.iter().fold(0u32, |n, byte| n << 8 | u32::from(*byte));
            format!("{out} {name}_csum:{value:x}")
        }
    }
}
