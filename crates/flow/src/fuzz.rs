//! Entry points for fuzzing what has no text: any bytes in, no panic out.

use crate::extract::{Layout, Metadata, extract};
use crate::{FlowKey, MacAddr, OfPort};

/// Reads a frame's headers. The first byte says how many tags a key tells apart; the key becomes a flow and the flow the same
/// key, offsets lie inside the frame, and what stood in the key before makes no difference.
pub fn extract_frame(bytes: &[u8]) {
    let Some((first, frame)) = bytes.split_first() else { return };
    let md = Metadata { in_port: 3, pkt_mark: 1, skb_priority: 2, ..Metadata::default() };
    for vlan_limit in [0, 1, first % 3] {
        let (mut key, mut other) = (FlowKey::default(), FlowKey::default());
        let layout = extract(frame, &md, vlan_limit, &mut key);
        for at in [layout.l3, layout.l4] {
            assert!(at == Layout::NONE || usize::from(at) <= frame.len(), "{layout:?}");
        }
        let junk: Vec<u8> = (0..frame.len()).map(|i| (i as u8).wrapping_mul(7) | 1).collect();
        extract(&junk, &md, vlan_limit, &mut other);
        extract(frame, &md, vlan_limit, &mut other);
        assert!(key == other, "the key depends on what it was before");
        let flow = key.to_flow(OfPort(3));
        assert!(flow.in_port() == OfPort(3) && flow.recirc_id == 0);
    }
}

/// Reads texts of numbers and addresses.
pub fn parse_words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(mac) = MacAddr::parse(text) {
        assert_eq!(MacAddr::parse(&mac.to_string()), Some(mac));
    }
    if let Some(port) = crate::text::parse_port(text, &crate::text::NoPortNames) {
        let printed = crate::text::format_port(port, &crate::text::NoPortNames);
        assert_eq!(crate::text::parse_port(&printed, &crate::text::NoPortNames), Some(port), "{text:?}");
    }
    if let Ok(subfield) = crate::text::parse_subfield(text) {
        let printed = crate::text::format_subfield(subfield);
        assert_eq!(crate::text::parse_subfield(&printed).ok(), Some(subfield), "{text:?}");
    }
}
