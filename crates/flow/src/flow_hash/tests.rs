use super::*;
use crate::{DpPort, FLOW_WORDS, nw_frag};
use proptest::prelude::*;

fn any_flow() -> impl Strategy<Value = Flow> {
    let types = prop::sample::select(vec![h::ETH_TYPE_IP, h::ETH_TYPE_IPV6, h::ETH_TYPE_ARP, 0x1234]);
    let protocols = prop::sample::select(vec![h::IPPROTO_TCP, h::IPPROTO_UDP, h::IPPROTO_ICMP, 0]);
    (any::<[u8; 8 * FLOW_WORDS]>(), types, protocols, 0..=nw_frag::MASK).prop_map(
        |(bytes, ty, proto, frag)| {
            let words = std::array::from_fn(|i| u64::from_ne_bytes(bytes[8 * i..][..8].try_into().unwrap()));
            let mut flow = Flow { dl_type: ty, nw_proto: proto, nw_frag: frag, ..Flow::from_words(words) };
            for tag in &mut flow.vlans {
                tag.tci = if tag.is_present() { tag.tci } else { 0 };
            }
            flow
        },
    )
}

fn reversed(flow: &Flow) -> Flow {
    let f = *flow;
    Flow {
        dl_src: f.dl_dst,
        dl_dst: f.dl_src,
        nw_src: f.nw_dst,
        nw_dst: f.nw_src,
        ipv6_src: f.ipv6_dst,
        ipv6_dst: f.ipv6_src,
        tp_src: f.tp_dst,
        tp_dst: f.tp_src,
        ..f
    }
}

proptest! {
    #[test]
    fn symmetric_hashes_are_equal_in_both_directions(flow in any_flow(), basis: u32) {
        let key = |f: &Flow| FlowKey::from_flow(f, DpPort(0));
        let back = reversed(&flow);
        prop_assert_eq!(symmetric_l4(&key(&flow), basis), symmetric_l4(&key(&back), basis));
        use HashFields::{SymmetricL3, SymmetricL3L4, SymmetricL3L4Udp, SymmetricL4};
        for fields in [SymmetricL4, SymmetricL3L4, SymmetricL3L4Udp, SymmetricL3] {
            prop_assert_eq!(fields.hash(&flow, basis), fields.hash(&back, basis), "{:?}", fields);
        }
    }

    #[test]
    fn a_hash_reads_only_the_fields_of_its_mask(flow in any_flow(), other in any_flow(), basis: u32) {
        for fields in HashFields::ALL {
            let mut wc = Mask::none();
            wc.0.nw_frag = nw_frag::MASK;
            fields.add_mask(&flow, &mut wc);
            let mut mixed = other;
            let words = mixed.words_mut().iter_mut().zip(flow.words()).zip(wc.words());
            words.for_each(|((w, own), m)| *w = *w & !m | own & m);
            prop_assert_eq!(fields.hash(&flow, basis), fields.hash(&mixed, basis), "{:?}", fields);
        }
    }
}

/// Every part of a conversation moves it to another bucket sooner or later, and buckets fill evenly.
#[test]
fn flows_spread_evenly() {
    let tcp = Flow { dl_type: h::ETH_TYPE_IP, nw_proto: h::IPPROTO_TCP, ..Flow::default() };
    let series: [(&str, fn(&mut Flow, u32)); 4] = [
        ("sources", |f, n| f.nw_src = 0x0a00_0000 + n),
        ("destinations", |f, n| f.nw_dst = n << 8),
        ("source ports", |f, n| f.tp_src = n as u16),
        ("ports of a pair", |f, n| (f.tp_src, f.tp_dst) = (n as u16, !n as u16)),
    ];
    for (name, change) in series {
        let mut of = [[0u32; 16]; 3];
        for n in 0..4096 {
            let mut flow = tcp;
            change(&mut flow, n);
            let key = FlowKey::from_flow(&flow, DpPort(0));
            let hashes = [five_tuple(&key, 0), symmetric_l4(&key, 7), HashFields::SymmetricL4.hash(&flow, 0)];
            hashes.iter().zip(&mut of).for_each(|(hash, buckets)| buckets[*hash as usize % 16] += 1);
        }
        // 256 expected; 6 standard deviations are 93.
        of.iter().flatten().for_each(|n| assert!((163..=349).contains(n), "{name}: {of:?}"));
    }
}

/// Expectations are those of select groups of OVS 3.1.
#[test]
fn packets_without_ip_spread_by_ethernet_addresses() {
    let arp = Flow { dl_type: h::ETH_TYPE_ARP, ..Flow::default() };
    let series: [(&str, u32, fn(&mut Flow, u32)); 5] = [
        ("sources", 16, |f, n| f.dl_src = [2, 0, 0, 0, (n >> 8) as u8, n as u8]),
        ("destinations", 16, |f, n| f.dl_dst = [2, 0, 0, (n >> 8) as u8, n as u8, 0]),
        ("types", 16, |f, n| f.dl_type = 0x9000 + n as u16),
        ("VLANs", 16, |f, n| {
            f.vlans[0] = VlanTag { tpid: h::ETH_TYPE_VLAN, tci: VlanTag::PRESENT | n as u16 }
        }),
        ("addresses of ARP", 1, |f, n| f.nw_src = 0x0a00_0000 + n),
    ];
    for (name, buckets, change) in series {
        let mut of = [0u32; 16];
        for n in 0..4096 {
            let mut flow = arp;
            change(&mut flow, n);
            of[symmetric_l4(&FlowKey::from_flow(&flow, DpPort(0)), 7) as usize % 16] += 1;
        }
        let used = of.iter().filter(|n| (163..=4096).contains(*n)).count();
        assert_eq!(used, buckets as usize, "{name}: {of:?}");
    }
}

#[test]
fn fragments_and_udp_have_no_ports() {
    let base = Flow { dl_type: h::ETH_TYPE_IP, nw_src: 1, nw_dst: 2, ..Flow::default() };
    let key = |proto, frag, port| {
        let flow = Flow { nw_proto: proto, nw_frag: frag, tp_src: port, ..base };
        FlowKey::from_flow(&flow, DpPort(0))
    };
    let tcp = h::IPPROTO_TCP;
    assert_ne!(five_tuple(&key(tcp, 0, 1), 0), five_tuple(&key(tcp, 0, 2), 0));
    assert_eq!(five_tuple(&key(tcp, nw_frag::ANY, 1), 0), five_tuple(&key(tcp, nw_frag::MASK, 0), 0));
    let udp = h::IPPROTO_UDP;
    assert_ne!(five_tuple(&key(udp, 0, 1), 0), five_tuple(&key(udp, 0, 2), 0));
    assert_eq!(symmetric_l4(&key(udp, 0, 1), 0), symmetric_l4(&key(udp, 0, 2), 0));
}

#[test]
fn chosen_fields_and_basis_decide() {
    let flow = Flow { dl_type: h::ETH_TYPE_IP, nw_src: 0x0a00_0001, tp_src: 5, ..Flow::default() };
    let of = |flow: &Flow, basis| fields(flow, [(FieldId::IpSrc, 0xffff_0000)].into_iter(), basis);
    assert_eq!(of(&flow, 1), of(&Flow { nw_src: 0x0a00_00ff, tp_src: 9, ..flow }, 1));
    assert_ne!(of(&flow, 1), of(&Flow { nw_src: 0x0a01_0001, ..flow }, 1));
    assert_ne!(of(&flow, 1), of(&flow, 2));
}
