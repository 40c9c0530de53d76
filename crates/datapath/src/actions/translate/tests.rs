//! Set actions are the oracle of the rewrite in one step; the full extraction is that of the key.

use super::*;
use crate::actions::re_extract;
use flow::extract::{Metadata, extract};
use flow::{FlowKey, nw_frag};
use packet::Offload;
use proptest::prelude::*;

/// Frames of UDP, TCP and ICMP; with options, extension headers, fragments, and cut off.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let kind = (prop::sample::select(vec![17u8, 17, 6, 6, 1, 132]), any::<bool>(), 0..4usize, 0..6u8);
    (kind, any::<[u8; 80]>(), any::<bool>(), 0..60usize).prop_map(
        |((proto, is_v6, options, frag), bytes, zero, cut)| {
            let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
            if is_v6 {
                f.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40 + 8 * u8::from(options == 1)]);
                f.extend([if options == 1 { 43 } else { proto }, 64]);
                f.extend(&bytes[..32]);
                if options == 1 {
                    f.extend([proto, 0, 0, frag & 1, 0, 0, 0, 0]);
                }
            } else {
                f.extend([8, 0, 0x45 + options as u8, 0, 0, 60 + 4 * options as u8, 0, 1]);
                f.extend([if frag == 0 { 0x20 } else { 0 }, u8::from(frag == 1), 64, proto]);
                f.extend(&bytes[..10]);
                f.resize(f.len() + 4 * options, 1);
            }
            let l4 = f.len();
            f.extend(&bytes[40..]);
            if proto == 6 {
                f[l4 + 12] = 0x50;
            } else if zero {
                f[l4 + 6..l4 + 8].fill(0);
            }
            if cut > 40 {
                f.truncate(f.len() - (cut - 40));
            }
            f
        },
    )
}

/// Result, frame and key of a rewrite.
type Done = (bool, Vec<u8>, FlowKey);

fn after(packet: &Packet, change: impl Fn(&mut Packet, &mut HeaderCtx<'_>) -> bool) -> Done {
    let (mut packet, mut key) = (packet.clone(), FlowKey::default());
    let mut layout = extract(packet.data(), &Metadata::default(), 1, &mut key);
    let mut dirty = false;
    let mut headers = HeaderCtx { key: &mut key, layout: &mut layout, dirty: &mut dirty, vlan_limit: 1 };
    let fits = change(&mut packet, &mut headers);
    headers.refresh(&packet);
    (fits, packet.data().to_vec(), key)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn one_step_equals_set_actions(frame in frame(), to in any::<[u64; 5]>(), partial in any::<bool>()) {
        let mut packet = Packet::from_slice(&frame);
        let mut key = FlowKey::default();
        let layout = extract(&frame, &Metadata::default(), 1, &mut key);
        let is_v6 = key.base.dl_type == h::ETH_TYPE_IPV6;
        let partial = partial && layout.l4 != flow::extract::Layout::NONE;
        if partial {
            let csum_offset = if key.base.nw_proto == h::IPPROTO_TCP { 16 } else { 6 };
            packet.offload = Offload { needs_csum: true, csum_start: layout.l4, csum_offset, ..Offload::default() };
        }
        let rest = to[4] & !0xffff_ffff | u64::from(key.base.nw_proto);
        let to = if is_v6 { Key::V6([to[0], to[1], to[2], to[3], rest]) } else { Key::V4([to[0], rest]) };
        let expected = after(&packet, |packet, headers| rewrite(packet, headers, &to).is_ok());
        let seen = after(&packet, |packet, headers| translate(packet, headers, &Some(Translation::Tuple(to))).is_ok());
        prop_assert_eq!(&seen, &expected);
        if seen.0 {
            let mut key = seen.2;
            re_extract(&mut key, &seen.1, 1);
            prop_assert_eq!(key, seen.2);
        }
        // Common packets take one step, and others do not change before the set actions.
        let alone = after(&packet, |packet, headers| rewrite_common(packet, headers, &to).is_some());
        let is_common = matches!(key.base.nw_proto, h::IPPROTO_TCP | h::IPPROTO_UDP)
            && key.base.nw_frag & nw_frag::MASK == 0
            && layout.l4 != flow::extract::Layout::NONE
            && !partial
            && (!is_v6 || frame[20] == key.base.nw_proto);
        if alone.0 {
            prop_assert_eq!(&alone, &expected);
            prop_assert!(is_common);
        } else {
            prop_assert_eq!(&alone.1, &frame);
            prop_assert!(!is_common || frame.len() < usize::from(layout.l4) + 18);
        }
    }
}
