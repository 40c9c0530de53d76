//! Tests of reassembly. Expectations are the answers of Debian's OVS 3.1 to the same frames, except where a test names
//! a difference.

mod joined;
mod model;

use super::*;
use packet::Offload;
use packet::checksum::{checksum, fold, pseudo, sum};

/// A held packet of the tests.
#[derive(Clone, Debug)]
struct Bit {
    packet: Packet,
    v6: bool,
    port: u32,
    recirc_id: u32,
}

impl HeldFragment for Bit {
    fn packet(&self) -> &Packet {
        &self.packet
    }

    fn packet_mut(&mut self) -> &mut Packet {
        &mut self.packet
    }

    fn l3(&self) -> usize {
        14
    }

    fn is_v6(&self) -> bool {
        self.v6
    }

    fn port(&self) -> u32 {
        self.port
    }

    fn recirc_id(&self) -> u32 {
        self.recirc_id
    }
}

/// Payload `start..end` of a datagram, as a fragment.
#[derive(Clone, Copy)]
struct Cut<'a> {
    v6: bool,
    id: u16,
    start: usize,
    more: bool,
    payload: &'a [u8],
    /// Options of IPv4, or extension headers of IPv6 before that of the fragment, the last of which names it.
    options: &'a [u8],
}

/// Takes a fragment that evicts none.
fn take(ipf: &Ipf<Bit>, bit: Bit, zone: u16, now_ms: u64) -> Taken<Bit> {
    let mut evicted = Vec::new();
    let taken = ipf.take(bit, zone, now_ms, &mut evicted);
    assert!(evicted.is_empty());
    taken
}

const CUT: Cut = Cut { v6: false, id: 1, start: 0, more: true, payload: &[], options: &[] };
const UDP: u8 = 17;

impl Cut<'_> {
    fn frame(&self) -> Vec<u8> {
        let mut f = vec![0x50, 0x54, 0, 0, 0, 2, 0x50, 0x54, 0, 0, 0, 1];
        if self.v6 {
            f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            f.extend(((8 + self.options.len() + self.payload.len()) as u16).to_be_bytes());
            f.extend([if self.options.is_empty() { 44 } else { 60 }, 64]);
            for last in [1, 2] {
                f.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
            f.extend(self.options);
            f.extend([UDP, 0]);
            f.extend((self.start as u16 | u16::from(self.more)).to_be_bytes());
            f.extend([0, 0]);
            f.extend(self.id.to_be_bytes());
        } else {
            let header = 20 + self.options.len();
            f.extend([0x08, 0, 0x40 | (header / 4) as u8, 0]);
            f.extend(((header + self.payload.len()) as u16).to_be_bytes());
            f.extend(self.id.to_be_bytes());
            f.extend(((self.start / 8) as u16 | u16::from(self.more) << 13).to_be_bytes());
            f.extend([64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            f.extend(self.options);
            let sum = checksum(&f[14..]);
            f[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        f.extend(self.payload);
        f
    }

    fn bit(&self, port: u32) -> Bit {
        Bit { packet: Packet::from_slice(&self.frame()), v6: self.v6, port, recirc_id: 0 }
    }
}

/// A datagram of UDP with `bytes` after its header and the right checksum.
fn udp(v6: bool, bytes: usize) -> Vec<u8> {
    let frame = Cut { v6, ..CUT }.frame();
    let addresses = &frame[if v6 { 22..54 } else { 26..34 }];
    let (src, dst) = addresses.split_at(addresses.len() / 2);
    let mut d = [1000u16, 2000, bytes as u16 + 8, 0].map(u16::to_be_bytes).concat();
    d.extend((0..bytes).map(|i| i as u8));
    let sum = !fold(sum(&d, pseudo(src, dst, UDP, d.len())));
    d[6..8].copy_from_slice(&sum.to_be_bytes());
    d
}

/// Outcome of a fragment as a word.
fn word(taken: &Taken<Bit>) -> String {
    match taken {
        Taken::Held => "held".into(),
        Taken::Complete(whole) => format!("complete {}", whole.fragments.len()),
        Taken::Refused(_, why) => format!("{why:?}"),
    }
}

/// Takes `frames` in order and compares the outcomes.
#[track_caller]
fn check(ipf: &Ipf<Bit>, frames: &[(&str, Vec<u8>, &str)]) {
    for (name, frame, expect) in frames {
        let v6 = frame[12] == 0x86;
        let bit = Bit { packet: Packet::from_slice(frame), v6, port: 1, recirc_id: 0 };
        assert_eq!(word(&take(ipf, bit, 0, 0)), *expect, "{name}");
    }
}

#[test]
fn fragments_are_held_until_all_have_arrived() {
    let body = [[7; 1208], [8; 1208]].concat();
    let cut = |id, start: usize, more, end: usize| {
        let payload = if end < start { &body[..0] } else { &body[start..end] };
        Cut { id, start, more, payload, ..CUT }.frame()
    };
    let ipf = Ipf::new(1);
    let mut wrong_sum = cut(3, 0, true, 1208);
    wrong_sum[25] ^= 1;
    check(
        &ipf,
        &[
            ("first", cut(1, 0, true, 1208), "held"),
            ("the same again", cut(1, 0, true, 1208), "Overlap"),
            ("too small", cut(2, 0, true, 800), "TooSmall"),
            ("wrong checksum", wrong_sum, "BadChecksum"),
            ("last without payload", cut(4, 1208, false, 0), "held"),
            ("middle without payload", cut(5, 1208, true, 0), "TooSmall"),
            ("last, alone", cut(6, 1208, false, 1228), "held"),
            ("length not in units", cut(7, 0, true, 1205), "held"),
            ("covered later", cut(8, 600, true, 1808), "held"),
            // OVS does not notice, and holds both.
            ("covers", cut(8, 0, true, 2416), "Overlap"),
            (
                "beyond a datagram",
                Cut { id: 9, start: 65528, more: false, payload: &body, ..CUT }.frame(),
                "held",
            ),
            ("last", cut(1, 1208, false, 2416), "complete 2"),
            ("a datagram", cut(1, 0, false, 1208), "NotFragment"),
            ("first after the empty last", cut(4, 0, true, 1208), "complete 2"),
        ],
    );
    let expect = FragmentCounts {
        enabled: true,
        min_bytes: 1200,
        accepted: 8,
        completed: 4,
        too_small: 2,
        overlapped: 2,
        bad_checksum: 1,
        ..FragmentCounts::default()
    };
    assert_eq!((ipf.status().v4, ipf.len()), (expect, 4));
}

#[test]
fn fragments_of_ipv6() {
    let body = [7; 3000];
    let cut =
        |id, start, more, end: usize| Cut { v6: true, id, start, more, payload: &body[start..end], ..CUT };
    let long = cut(6, 0, true, 1304).frame();
    check(
        &Ipf::new(1),
        &[
            ("first", cut(1, 0, true, 1304).frame(), "held"),
            ("too small", cut(2, 0, true, 1000).frame(), "TooSmall"),
            ("a datagram", cut(3, 0, false, 1304).frame(), "NotFragment"),
            ("last, alone", cut(4, 1304, false, 1304).frame(), "held"),
            ("last", cut(1, 1304, false, 2400).frame(), "complete 2"),
            ("cut off", long[..1000].to_vec(), "Invalid"),
            ("cut off in its header", long[..58].to_vec(), "NotFragment"),
        ],
    );
}

#[test]
fn contradicting_ends_are_refused() {
    let body = [7; 4000];
    let cut = |start, more, end: usize| Cut { start, more, payload: &body[start..end], ..CUT }.frame();
    // OVS completes a datagram of these, in order of their bytes.
    check(
        &Ipf::new(1),
        &[
            ("last", cut(2400, false, 3000), "held"),
            ("another last", cut(1200, false, 2400), "Overlap"),
            ("beyond the last", cut(3000, true, 4000 - 8), "TooSmall"),
            ("beyond it, large", Cut { start: 3200, payload: &body, ..CUT }.frame(), "Overlap"),
            ("first", cut(0, true, 2400), "complete 2"),
        ],
    );
}

#[test]
fn lengths_and_large_segments() {
    let body = [7; 1208];
    let frame = Cut { payload: &body, ..CUT }.frame();
    let ipf = Ipf::new(1);
    let take = |change: &dyn Fn(&mut Packet)| {
        let mut packet = Packet::from_slice(&frame);
        change(&mut packet);
        word(&take(&ipf, Bit { packet, v6: false, port: 1, recirc_id: 0 }, 0, 0))
    };
    let resum = |p: &mut Packet| {
        p.data_mut()[24..26].fill(0);
        let sum = checksum(&p.data()[14..34]);
        p.data_mut()[24..26].copy_from_slice(&sum.to_be_bytes());
    };
    for (name, change, expect) in [
        ("length beyond the frame", &(|p: &mut Packet| p.set_len(1200)) as &dyn Fn(&mut Packet), "Invalid"),
        ("no header", &|p| p.set_len(20), "Invalid"),
        ("header of 16 bytes", &|p| (p.data_mut()[14] = 0x44, resum(p)).1, "Invalid"),
        ("length within the header", &|p| (p.data_mut()[16..18].fill(0), resum(p)).1, "Invalid"),
        ("large segment", &|p| p.offload.gso = packet::GsoKind::UdpL4, "Invalid"),
        ("padding", &|p| p.set_len(1300), "held"),
    ] {
        assert_eq!(take(change), expect, "{name}");
    }
}

#[test]
fn datagrams_differ_in_addresses_protocol_zone_and_recirculation() {
    let body = [7; 1208];
    let ipf = Ipf::new(1);
    let first = Cut { payload: &body, ..CUT }.bit(1);
    let mut other = first.clone();
    other.recirc_id = 7;
    assert_eq!(word(&take(&ipf, first.clone(), 0, 0)), "held");
    assert_eq!(word(&take(&ipf, first.clone(), 1, 0)), "held");
    assert_eq!(word(&take(&ipf, other, 0, 0)), "held");
    assert_eq!(word(&take(&ipf, first, 0, 0)), "Overlap");
    let mut text: Vec<String> = ipf.lists().iter().map(|l| l.to_string()).collect();
    text.sort();
    let line = |recirc: u32, zone: u16| {
        format!(
            "(src=10.0.0.1,dst=10.0.0.2,recirc_id={recirc},ip_id=1,dl_type=0x800,zone={zone},nw_proto=17,\
             num_fragments=1,state=first frag)"
        )
    };
    assert_eq!(text, [line(0, 0), line(0, 1), line(7, 0)]);
}

#[test]
fn settings_have_the_ranges_of_ovs() {
    let ipf: Ipf<Bit> = Ipf::new(1);
    for (bytes, expect) in [(399, Err(OutOfRange)), (400, Ok(())), (100_000, Ok(()))] {
        for v6 in [false, true] {
            assert_eq!(ipf.set_min_fragment_bytes(v6, bytes), expect, "{bytes}");
        }
    }
    for (max, expect) in [(5001, Err(OutOfRange)), (5000, Ok(())), (0, Ok(()))] {
        assert_eq!(ipf.set_max_fragments(max), expect, "{max}");
    }
    let body = [7; 1208];
    let bit = Cut { payload: &body, start: 1208, more: false, ..CUT }.bit(1);
    assert_eq!(word(&take(&ipf, bit.clone(), 0, 0)), "TooMany");
    ipf.set_max_fragments(1).unwrap();
    ipf.set_enabled(false, false);
    assert_eq!(word(&take(&ipf, bit.clone(), 0, 0)), "Disabled");
    // As in OVS, sizes count while one of the families is enabled.
    assert_eq!(word(&take(&ipf, Cut { payload: &body, ..CUT }.bit(1), 0, 0)), "TooSmall");
    ipf.set_enabled(true, false);
    assert_eq!(word(&take(&ipf, Cut { payload: &body, ..CUT }.bit(1), 0, 0)), "Disabled");
    ipf.set_enabled(false, true);
    assert_eq!(word(&take(&ipf, bit, 0, 0)), "held");
    let status = ipf.status();
    assert_eq!((status.v4.too_small, status.v4.too_many), (1, 1));
}

#[test]
fn status_and_lists_as_text() {
    let expect = "        Fragmentation Module Status
        ---------------------------
        v4 enabled: 1
        v6 enabled: 0
        max num frags (v4/v6): 1000
        num frag: 7
        min v4 frag size: 1200
        v4 frags accepted: 10
        v4 frags completed: 4
        v4 frags expired: 1
        v4 frags too small: 5
        v4 frags overlapped: 3
        v4 frags purged: 2
        min v6 frag size: 1280
        v6 frags accepted: 6
        v6 frags completed: 0
        v6 frags expired: 0
        v6 frags too small: 0
        v6 frags overlapped: 0
        v6 frags purged: 0
";
    let v4 = FragmentCounts {
        enabled: true,
        min_bytes: 1200,
        accepted: 10,
        completed: 4,
        expired: 1,
        too_small: 5,
        overlapped: 3,
        purged: 2,
        too_many: 9,
        evicted: 8,
        bad_checksum: 0,
    };
    let v6 = FragmentCounts { min_bytes: 1280, accepted: 6, ..FragmentCounts::default() };
    assert_eq!(FragmentStatus { max: 1000, held: 7, v4, v6 }.to_string(), expect);

    let ipf = Ipf::new(3);
    let body = vec![7; 40_000];
    let cut = |v6, start, more, bytes| Cut { v6, start, more, payload: &body[..bytes], ..CUT }.bit(1);
    let check = |bit: Bit, expect: &str| {
        take(&ipf, bit, 5, 0);
        let text =
            ipf.lists().iter().map(|l| l.to_string()).find(|l| l.contains("fd00") == expect.contains("fd00"));
        assert_eq!(text.as_deref(), Some(expect));
    };
    let v6 = |n: usize, state: &str| {
        format!(
            "(src=fd00::1,dst=fd00::2,recirc_id=0,ip_id=1,dl_type=0x86dd,zone=5,nw_proto=0,\
             num_fragments={n},state={state})"
        )
    };
    let v4 = |n: usize, state: &str| {
        v6(n, state).replace("fd00::", "10.0.0.").replace("86dd", "800").replace("nw_proto=0", "nw_proto=17")
    };
    check(cut(true, 1304, true, 1304), &v6(1, "other frag"));
    check(cut(true, 4000, false, 1304), &v6(2, "last frag"));
    check(cut(true, 0, true, 1304), &v6(3, "first/last frag"));
    check(cut(false, 0, true, 40_000), &v4(1, "first frag"));
    check(cut(false, 40_000, false, 25_520), &v4(2, "reassemble fail"));
}

#[test]
fn a_datagram_beyond_65535_bytes_never_completes() {
    let body = vec![7; 40_000];
    let ipf = Ipf::new(1);
    let cut = |id, start, more, bytes| Cut { id, start, more, payload: &body[..bytes], ..CUT }.frame();
    check(
        &ipf,
        &[
            ("first", cut(1, 0, true, 40_000), "held"),
            ("last: 65,540 bytes", cut(1, 40_000, false, 25_520), "held"),
            ("any more", cut(1, 0, true, 1200), "ListFull"),
            ("first", cut(2, 0, true, 40_000), "held"),
            ("last: 65,535 bytes", cut(2, 40_000, false, 25_515), "complete 2"),
        ],
    );
    assert_eq!(ipf.expire(TIMEOUT_MS + 1, 100).len(), 2);
}

#[test]
fn fragments_of_a_list_are_limited_for_ipv4() {
    // 58 of at least 1,140 bytes of payload fill a datagram.
    let body = [7; 1208];
    let ipf = Ipf::new(1);
    for n in 0..60 {
        let bit = Cut { start: 1208 * n % 65536, payload: &body, id: 1, ..CUT }.bit(1);
        let start = (1208 * n) as u32;
        let taken = word(&take(&ipf, bit, 0, 0));
        assert_eq!(taken, if n < 55 { "held" } else { "Overlap" }, "{start}");
    }
    assert_eq!((list_max(false, 1200), list_max(false, 400), list_max(false, 1 << 20)), (58, 193, 1));
    // Reached with pieces in between that the minimum size forbids only for datagrams without options.
    let ipf = Ipf::new(1);
    ipf.set_min_fragment_bytes(false, 60_000).unwrap();
    let body = vec![7; 60_000];
    assert_eq!(list_max(false, 60_000), 2);
    let cut = |start: usize, bytes: usize, more| Cut { start, more, payload: &body[..bytes], ..CUT }.bit(1);
    for (bit, expect) in [
        (cut(65_000, 100, false), "held"),
        (cut(0, 60_000, true), "held"),
        (cut(60_000, 5000, false), "ListFull"),
    ] {
        assert_eq!(word(&take(&ipf, bit, 0, 0)), expect);
    }
    assert_eq!(ipf.status().v4.too_many, 1);
}

#[test]
fn fragments_expire_by_datagram_in_slices() {
    let body = [7; 1208];
    let ipf = Ipf::new(1);
    let take = |id, now_ms| word(&take(&ipf, Cut { id, payload: &body, ..CUT }.bit(1), 0, now_ms));
    for id in 0..10 {
        assert_eq!(take(id, 500), "held");
    }
    assert_eq!(take(10, 600), "held");
    assert!(ipf.expire(500 + TIMEOUT_MS, 100).is_empty(), "the time is over after its end");
    let slices: Vec<usize> = (0..4).map(|_| ipf.expire(501 + TIMEOUT_MS, 4).len()).collect();
    assert_eq!(slices, [4, 4, 2, 0]);
    assert_eq!((ipf.len(), ipf.lists().len(), ipf.lists()[0].ip_id), (1, 1, 10));
    assert_eq!(ipf.expire(600 + TIMEOUT_MS + PURGE_AFTER_MS, 4).len(), 1);
    let v4 = ipf.status().v4;
    assert_eq!((v4.expired, v4.purged, ipf.len()), (10, 1, 0));
    // The place and the datagram's number are free again; the end of time is no fault.
    assert_eq!(take(3, u64::MAX), "held");
    assert!(ipf.expire(u64::MAX, 4).is_empty());
}

#[test]
fn a_flooding_port_does_not_keep_out_others() {
    let body = [7; 1208];
    let ipf = Ipf::new(1);
    let flood = |port: u32, first: u16| {
        let mut evicted = Vec::new();
        (0..1500).for_each(|n| {
            let bit = Cut { id: first + n, payload: &body, ..CUT }.bit(port);
            ipf.take(bit, port as u16, 0, &mut evicted);
        });
        evicted
    };
    let held_of = |port: u16| ipf.lists().iter().filter(|l| l.zone == port).count();
    let datagram = |port: u32| {
        let cut = |start: usize, more| Cut { id: 9999, start, more, payload: &body, ..CUT }.bit(port);
        let mut evicted = Vec::new();
        let bits = [cut(2416, false), cut(0, true), cut(1208, true)];
        let taken = bits.map(|bit| word(&ipf.take(bit, port as u16, 0, &mut evicted)));
        assert_eq!(taken, ["held", "held", "complete 3"], "port {port} beside {}", ipf.len());
        evicted
    };
    // Alone, a port gets all places, as in OVS; then it loses them to others.
    assert!(flood(1, 0).is_empty());
    assert_eq!((ipf.len(), held_of(1), ipf.status().v4.too_many), (1000, 1000, 500));
    assert!(datagram(2).iter().all(|f| f.port == 1));
    for port in 2..11 {
        assert!(flood(port, 0).iter().all(|f| f.port != port));
    }
    assert_eq!(ipf.len(), 1000);
    for port in 1..11 {
        assert!((90..=110).contains(&held_of(port)), "port {port}: {}", held_of(port));
    }
    for victim in 100..300 {
        datagram(victim);
    }
    // A port that floods all the time gets no more than its share.
    let evicted = flood(1, 2000).len();
    assert!(held_of(1) <= 110 && evicted < 30, "{evicted}");
    let mut expired = 0;
    while let n @ 1.. = ipf.expire(TIMEOUT_MS + 1, 100).len() {
        expired += n;
    }
    let v4 = ipf.status().v4;
    assert_eq!((v4.expired as usize, v4.accepted), (expired, v4.completed + v4.expired + v4.evicted));
    assert_eq!((ipf.len(), flood(1, 0).len(), ipf.len()), (0, 0, 1000));
}

#[test]
fn a_port_is_charged_for_fragments_of_datagrams_of_others() {
    let body = [7; 1208];
    let ipf = Ipf::new(1);
    ipf.set_max_fragments(40).unwrap();
    let cut = |id, start: usize, port| Cut { id, start, payload: &body, ..CUT }.bit(port);
    for id in 0..8 {
        assert_eq!(word(&take(&ipf, cut(id, 0, 1), 0, 0)), "held");
        for n in 1..5 {
            assert_eq!(word(&take(&ipf, cut(id, 1208 * n, 2), 0, 0)), "held");
        }
    }
    let mut evicted = Vec::new();
    assert_eq!(word(&ipf.take(cut(100, 0, 3), 0, 0, &mut evicted)), "held");
    assert_eq!((evicted.len(), ipf.len(), ipf.status().v4.evicted), (5, 36, 5));
}

#[test]
fn all_places_taken() {
    let body = [7; 1208];
    let ipf = Ipf::new(1);
    ipf.set_max_fragments(3).unwrap();
    let take = |id, port| word(&take(&ipf, Cut { id, payload: &body, ..CUT }.bit(port), 0, 0));
    let taken = [take(1, 1), take(2, 2), take(3, 3), take(4, 3), take(5, 4)];
    assert_eq!(taken, ["held", "held", "held", "TooMany", "TooMany"]);
    // Fewer places than fragments: these stay.
    ipf.set_max_fragments(1).unwrap();
    assert_eq!((take(6, 4).as_str(), ipf.len()), ("TooMany", 3));
}

#[test]
fn threads_share_it() {
    let body = [7; 1208];
    let ipf = Ipf::new(1);
    // The fragments of each datagram come from several threads.
    let complete: usize = std::thread::scope(|s| {
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let (ipf, body) = (&ipf, &body);
                s.spawn(move || {
                    let cut =
                        |id| Cut { id, start: 1208 * n, more: n < 2, payload: body, ..CUT }.bit(n as u32);
                    (0..200).filter(|id| matches!(take(ipf, cut(*id), 0, 0), Taken::Complete(_))).count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!((complete, ipf.len(), ipf.lists().len()), (200, 0, 0));
}

#[test]
fn a_port_gets_its_share_beside_threads_that_take_every_place() {
    let body = [7; 1208];
    let ipf = Ipf::new(1);
    let done = AtomicBool::new(false);
    let flood = |port: u32| {
        let mut evicted = Vec::new();
        let mut id = 0_u16;
        while !done.load(Ordering::Relaxed) {
            id = id.wrapping_add(1);
            let now_ms = u64::from(id) / 4;
            ipf.take(Cut { id, payload: &body, ..CUT }.bit(port), port as u16, now_ms, &mut evicted);
            evicted.clear();
        }
    };
    let expire = || {
        let mut now_ms = TIMEOUT_MS;
        while !done.load(Ordering::Relaxed) {
            now_ms = TIMEOUT_MS + (now_ms + 100) % TIMEOUT_MS;
            ipf.expire(now_ms, 64);
        }
    };
    let refused = std::thread::scope(|s| {
        s.spawn(|| flood(1));
        s.spawn(|| flood(2));
        s.spawn(expire);
        let cut = |id: u16, n: usize| Cut { id, start: 1208 * n, more: n < 2, payload: &body, ..CUT }.bit(3);
        let mut evicted = Vec::new();
        let pieces = (0..5000).flat_map(|id| [(id, 0), (id, 1), (id, 2)]);
        // Its deadline is later than any time passed to `expire`.
        let take = |(id, n)| ipf.take(cut(id, n), 3, 2 * TIMEOUT_MS, &mut evicted);
        let refused = pieces.map(take).filter(|t| matches!(t, Taken::Refused(..))).count();
        done.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, 0);
}
