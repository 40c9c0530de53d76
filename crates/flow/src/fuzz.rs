//! Fuzz targets for binary formats: any bytes in, no panic out.

use crate::extract::{Layout, Metadata, extract};
use crate::nlattr::{AttrWriter, Attrs};
use crate::nlkey::{KeyLimits, kernel_mask, key_to_bytes, mask_fits, mask_to_bytes, parse_key, parse_mask};
use crate::{FlowKey, MacAddr, OfPort};

/// Parses a frame's headers. The first byte is the VLAN limit. The key becomes a flow and the flow the same
/// key, offsets lie inside the frame, and the former contents of the key have no effect.
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

/// Parses texts of numbers and addresses.
pub fn parse_words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(mac) = MacAddr::parse(text) {
        assert_eq!(MacAddr::parse(&mac.to_string()), Some(mac));
    }
    if let Some(port) = crate::text::parse_port(text, &crate::text::NoPortNames) {
        let printed = crate::text::format_port(port, &crate::text::NoPortNames);
        assert_eq!(crate::text::parse_port(&printed, &crate::text::NoPortNames), Some(port), "{text:?}");
    }
    let table = all_mapped();
    if let Ok(subfield) = crate::text::parse_subfield(text, &table) {
        let printed = crate::text::format_subfield(subfield, &table);
        assert_eq!(crate::text::parse_subfield(&printed, &table).ok(), Some(subfield), "{text:?}");
    }
}

/// A table with a mapping of 4 bytes for each field.
fn all_mapped() -> crate::TlvTable {
    let mut table = crate::TlvTable::EMPTY;
    (0..64u8).for_each(|i| table.add(i.into(), 0, i, 4).expect("each field has room for 4 bytes"));
    table
}

/// Parses netlink attributes, nested ones too; a rewritten list has the same attributes.
pub fn attributes(bytes: &[u8]) {
    walk(bytes, 0);
    let Ok(attrs) = Attrs::parse(bytes) else { return };
    let mut out = AttrWriter::new();
    for a in attrs {
        out.put(a.kind, a.content);
    }
    let again = out.finish().expect("what was read fits");
    let plain =
        |attrs: Attrs<'_>| attrs.into_iter().map(|a| (a.kind, a.content.to_vec())).collect::<Vec<_>>();
    assert_eq!(plain(Attrs::parse(&again).expect("what was written")), plain(attrs));
}

fn walk(bytes: &[u8], depth: usize) {
    let Ok(attrs) = Attrs::parse(bytes) else { return };
    for a in attrs {
        let _numbers = (a.u8(), a.u16(), a.u32(), a.u64(), a.be16(), a.be32(), a.text(), a.prefix::<3>());
        let _sum = a.u32s().map(|n| n.fold(0u32, u32::wrapping_add));
        assert_eq!(attrs.get(a.kind).map(|last| last.kind), Some(a.kind));
        if depth < 8 {
            walk(a.content, depth + 1);
        }
    }
}

/// Parses a kernel key, and the rest of the bytes as its mask. The first byte is the VLAN limit, the second
/// the length of the key. Rewritten keys parse equally; the kernel has its own form of a mask.
pub fn kernel_key(bytes: &[u8]) {
    let Some(([limit, len], rest)) = bytes.split_first_chunk() else { return };
    let (limit, len) = (limit % 3, usize::from(*len) * 4);
    let (key, mask) = rest.split_at(len.min(rest.len()));
    let Ok((key, _)) = parse_key(key, limit) else { return };
    let limits = KeyLimits::LINUX;
    let written = key_to_bytes(&key, &limits);
    let (second, _) = parse_key(&written, limit).expect("what was written");
    let (third, _) = parse_key(&key_to_bytes(&second, &limits), limit).expect("what was written");
    assert!(second == third, "{second:?}\n{third:?}");
    let Ok((mask, _)) = parse_mask(mask, &second, limit) else { return };
    let held = kernel_mask(&second, &mask, &limits);
    assert!(kernel_mask(&second, &held, &limits) == held, "{second:?}\n{mask:?}\n{held:?}");
    let (reread, _) =
        parse_mask(&mask_to_bytes(&second, &mask, &limits), &second, limit).expect("what was written");
    assert!(reread == held, "{second:?}\n{reread:?}\n{held:?}");
    assert!(!mask_fits(&second, &mask, &limits) || mask_fits(&second, &held, &limits));
}
