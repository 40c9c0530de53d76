//! Rewrites by words equal those by fields.

use super::*;
use flow::FlowKey;
use flow::extract::{Metadata, extract};
use packet::Offload;
use proptest::prelude::*;

/// A frame with any IPv4 header that is parsed, its checksum right or not.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let sum = prop::option::of(prop::sample::select(vec![0u16, 0xffff, 0x1234]));
    (any::<[u8; 20]>(), 0..3u8, sum).prop_map(|(header, options, sum)| {
        let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        f.extend(header);
        f.extend([1; 8][..4 * usize::from(options)].iter());
        (f[14], f[16], f[17], f[20], f[21]) = (0x45 + options, 0, 28 + 4 * options, 0, 0);
        f[24..26].fill(0);
        let right = packet::checksum::checksum(&f[14..]);
        f[24..26].copy_from_slice(&sum.unwrap_or(right).to_be_bytes());
        f.extend([0, 5, 0, 6, 0, 8, 0, 0]);
        f
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn service_and_lifetime_are_rewritten_as_by_fields(
        frame in frame(),
        value: (u8, u8),
        mask: (u8, u8),
        is_partial: bool,
        of_addresses in prop::option::of(1..u32::MAX),
    ) {
        let fields = |(tos, ttl), src| Ipv4Set { tos, ttl, src, dst: 0 };
        let m = Masked { value: fields(value, 7), mask: fields(mask, of_addresses.unwrap_or(0)) };
        let Some(change) = Ipv4Change::new(&m) else {
            prop_assert!(of_addresses.is_some());
            return Ok(());
        };
        prop_assert!(of_addresses.is_none());
        let done = |by_words: bool| {
            let mut packet = Packet::from_slice(&frame);
            if is_partial {
                packet.offload = Offload { needs_csum: true, csum_start: 14, csum_offset: 10, ..Offload::NONE };
            }
            let (mut key, mut dirty) = (FlowKey::default(), false);
            let mut layout = extract(packet.data(), &Metadata::default(), 1, &mut key);
            let mut view = HeaderCtx { key: &mut key, layout: &mut layout, dirty: &mut dirty, vlan_limit: 1 };
            let fits = match by_words {
                true => ipv4_rest(&mut packet, &mut view, change),
                false => ipv4(&mut packet, &mut view, &m),
            };
            (fits.is_ok(), packet.data().to_vec(), key)
        };
        let (by_words, by_fields) = (done(true), done(false));
        prop_assert!(by_words == by_fields, "{by_words:02x?} is not {by_fields:02x?}");
        prop_assert!(by_fields.0);
    }
}
