//! Works of the rows without a network: frames in a capture file, replayed endlessly, and their rules.

use crate::frames::{FRAME_BYTES, Frames, Stamp};
use crate::tunnels::Tunnel;
use anyhow::{Context, Result};
use packet::checksum::checksum;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use testkit::TempDir;

/// OpenFlow number of the `null` port.
pub(crate) const OUT: u32 = 100;
/// Masks of the work of many masks.
pub(crate) const MASKS: u32 = 17;
/// Masks of the works that count lookups.
pub(crate) const SUBTABLES: u32 = 16;
pub(crate) const PORTS: u32 = 8;
/// Frames of each mask of those works, if ports use two of them.
const FRAMES_A_MASK: u64 = 64;
/// Frames of a port that uses one of them, with a single frame of the other.
const RARE: u64 = 10_000;

/// A port that plays a file for ever.
pub(crate) struct Source {
    /// Its OpenFlow number.
    pub(crate) port: u32,
    pub(crate) file: PathBuf,
    /// Way of its packets.
    pub(crate) tunnel: Tunnel,
}

/// Frames by port, and their outputs.
pub(crate) struct Work {
    /// Names it in rows.
    pub(crate) id: String,
    pub(crate) title: String,
    /// Rules of the bridge `br0`.
    pub(crate) rules: Vec<String>,
    /// Added in this order.
    pub(crate) sources: Vec<Source>,
    /// Megaflows in each switch.
    pub(crate) megaflows: usize,
    /// Number of those that may end before they are counted.
    pub(crate) may_end: usize,
    /// Nearly all packets belong to established connections: rules of such packets, and of those of new connections, count them.
    pub(crate) established: bool,
}

/// A frame of a flow; `to` replaces its destination address.
pub(crate) fn frame(frames: &Frames, flow: u64, to: Option<u32>) -> [u8; FRAME_BYTES] {
    let mut bytes = [0; FRAME_BYTES];
    frames.write(Stamp { sequence: flow, sent_ns: 0 }, &mut bytes);
    if let Some(to) = to {
        bytes[30..34].copy_from_slice(&to.to_be_bytes());
        sum_header(&mut bytes);
    }
    bytes
}

/// The frame that answers another one: with its addresses and ports exchanged.
pub(crate) fn reply_to(frame: &[u8; FRAME_BYTES]) -> [u8; FRAME_BYTES] {
    let mut reply = *frame;
    for (to, from) in
        [(0..6, 6..12), (6..12, 0..6), (26..30, 30..34), (30..34, 26..30), (34..36, 36..38), (36..38, 34..36)]
    {
        reply[to].copy_from_slice(&frame[from]);
    }
    reply
}

/// Writes the checksum of the IPv4 header.
pub(crate) fn sum_header(frame: &mut [u8; FRAME_BYTES]) {
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Shuffles values, in the same irregular order in every run.
pub(crate) fn shuffle<T>(values: &mut [T]) {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for i in (1..values.len()).rev() {
        // xorshift64 (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values.swap(i, (state % (i as u64 + 1)) as usize);
    }
}

/// A capture file (pcap, little endian, microseconds, Ethernet) of frames.
pub(crate) fn capture<F: AsRef<[u8]>>(frames: &[F]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    // Magic; version 2.4; time zone and accuracy; snapshot length; link type.
    let mut file = words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 0xffff, 1]);
    for frame in frames {
        let frame = frame.as_ref();
        file.extend(words(&[0, 0, frame.len() as u32, frame.len() as u32]));
        file.extend_from_slice(frame);
    }
    file
}

/// Writes a capture file of frames, shuffled.
pub(crate) fn write<F: AsRef<[u8]>>(folder: &Path, name: &str, mut frames: Vec<F>) -> Result<PathBuf> {
    shuffle(&mut frames);
    let path = folder.join(name);
    let mut file =
        std::fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(&capture(&frames)).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The address in 10.0.0.0/8 whose highest set bit below that is bit `bit`, and the prefix of all such
/// addresses.
pub(crate) fn leading(bit: u32) -> (u32, String) {
    leading_in(0x0a00_0000, bit)
}

/// As [`leading`], in another network.
pub(crate) fn leading_in(network: u32, bit: u32) -> (u32, String) {
    let to = network | 1 << bit;
    (to, format!("{}/{}", std::net::Ipv4Addr::from(to), 32 - bit))
}

/// `flows` flows, and rules that yield one mask; `simple`: the rule matches only the port, so a switch may
/// skip parsing the packet.
pub(crate) fn one_mask(folder: &TempDir, flows: u64, simple: bool) -> Result<Work> {
    let frames = Frames::new(0, flows);
    let all = (0..flows).map(|flow| frame(&frames, flow, None)).collect();
    let file = write(folder.path(), &format!("flows{flows}{}.pcap", u8::from(simple)), all)?;
    let what = if simple { "in_port=1" } else { "in_port=1,udp,nw_dst=10.98.0.0/16,tp_dst=5000" };
    let rule = if simple { ", a rule that matches the port alone" } else { "" };
    Ok(Work {
        id: format!("{flows}{}", if simple { "-port" } else { "" }),
        title: format!("{flows} flow(s), one megaflow{rule}"),
        rules: vec![format!("{what},actions=output:{OUT}")],
        sources: vec![Source { port: 1, file, tunnel: Tunnel::None }],
        may_end: 0,
        established: false,
        megaflows: 1,
    })
}

/// `flows` flows under 17 prefixes, each half as large as the previous one: skewed, like real traffic.
pub(crate) fn many_masks(folder: &TempDir, flows: u64) -> Result<Work> {
    let frames = Frames::new(0, flows);
    let to = |flow: u64| 0x0a00_0000 | (flow as u32 + 1);
    let all = (0..flows).map(|flow| frame(&frames, flow, Some(to(flow)))).collect();
    let file = write(folder.path(), "masks.pcap", all)?;
    let rule = |bit| format!("in_port=1,ip,nw_dst={},actions=output:{OUT}", leading(bit).1);
    Ok(Work {
        id: format!("{MASKS}masks"),
        title: format!("{flows} flows, {MASKS} megaflows in as many masks"),
        rules: (0..MASKS).map(rule).collect(),
        sources: vec![Source { port: 1, file, tunnel: Tunnel::None }],
        may_end: 0,
        established: false,
        megaflows: MASKS as usize,
    })
}

/// `flows` flows with a separate megaflow each: the rule's action reads the addresses and ports of every
/// packet.
pub(crate) fn own_megaflows(folder: &TempDir, flows: u64) -> Result<Work> {
    let frames = Frames::new(0, flows);
    let all = (0..flows).map(|flow| frame(&frames, flow, None)).collect();
    let file = write(folder.path(), &format!("own{flows}.pcap"), all)?;
    let read = [("IP_SRC", 0, 32), ("IP_DST", 1, 32), ("UDP_SRC", 2, 16), ("UDP_DST", 3, 16)];
    let moves =
        read.map(|(field, reg, bits)| format!("move:NXM_OF_{field}[]->NXM_NX_REG{reg}[0..{}]", bits - 1));
    Ok(Work {
        id: format!("own{flows}"),
        title: format!("{flows} flows, a megaflow each"),
        rules: vec![format!("in_port=1,udp,actions={},output:{OUT}", moves.join(","))],
        sources: vec![Source { port: 1, file, tunnel: Tunnel::None }],
        may_end: 0,
        established: false,
        megaflows: flows as usize,
    })
}

/// `flows` flows through one table more than recirculations; each table rewrites Ethernet, IPv4 and UDP
/// headers, after which all flows share a megaflow, and all but the last recirculate. For daemons in dummy
/// mode, which have the action for that.
pub(crate) fn pipeline(folder: &TempDir, flows: u64, recirculations: u64) -> Result<Work> {
    let frames = Frames::new(0, flows);
    let all = (0..flows).map(|flow| frame(&frames, flow, None)).collect();
    let file = write(folder.path(), &format!("pipeline{recirculations}.pcap"), all)?;
    let rule = |table: u64| {
        let next = match table < recirculations {
            true => format!("debug_recirc,resubmit(,{})", table + 1),
            false => format!("output:{OUT}"),
        };
        let (mac, port) = (format!("02:00:00:00:01:0{table}"), 6000 + table);
        format!("table={table},in_port=1,udp,actions=mod_dl_dst:{mac},dec_ttl,mod_tp_dst:{port},{next}")
    };
    Ok(Work {
        id: recirculations.to_string(),
        title: format!(
            "{flows} flows, rewrites in each of {} table(s), recirculated {recirculations} time(s)",
            recirculations + 1
        ),
        rules: (0..=recirculations).map(rule).collect(),
        sources: vec![Source { port: 1, file, tunnel: Tunnel::None }],
        may_end: 0,
        established: false,
        megaflows: recirculations as usize + 1,
    })
}

/// Source addresses of the frames of [`tracked`] that share an address after translation.
const SHARING: u64 = 5;

/// The frames of a tracked connection: its own and the reply. With translation each [`SHARING`] sources have one address,
/// and their destinations differ, so that ports stay and the reply is known.
fn both_directions(frames: &Frames, flow: u64, translated: bool) -> [[u8; FRAME_BYTES]; 2] {
    let source = flow / 1000;
    let server = |n: u64| 0x0a62_0001 + n as u32;
    let own = frame(frames, flow, translated.then(|| server(source % SHARING)));
    let mut reply = reply_to(&own);
    if translated {
        reply[30..34].copy_from_slice(&[192, 0, 2, 1 + (source / SHARING) as u8]);
        sum_header(&mut reply);
    }
    [own, reply]
}

/// `flows` flows, each a tracked connection of both directions: the first packets commit it, with translation of the source
/// to one of 20 addresses on request; later ones are established. (A connection without replies stays new in both
/// switches.) Own frames and replies alternate, a reply half of the flows behind. Each work has a zone of its own, so that
/// none finds connections of another one.
pub(crate) fn tracked(folder: &TempDir, flows: u64, translated: bool) -> Result<Work> {
    let frames = Frames::new(0, flows);
    let mut own: Vec<_> = (0..flows).map(|flow| both_directions(&frames, flow, translated)).collect();
    shuffle(&mut own);
    let (begin, rest) = own.split_at(own.len() / 2);
    let mut all: Vec<_> = begin.iter().map(|[own, _]| *own).collect();
    all.extend(rest.iter().zip(&own).flat_map(|([own, _], [_, reply])| [*own, *reply]));
    all.extend(own[rest.len()..].iter().map(|[_, reply]| *reply));
    let suffix = if translated { "-snat" } else { "" };
    let file = write(folder.path(), &format!("ct{flows}{suffix}.pcap"), all)?;
    let zone = flows % 60_000 + u64::from(translated);
    let mut rules = vec![
        format!("in_port=1,udp,actions=ct(zone={zone},{}table=1)", if translated { "nat," } else { "" }),
        format!("table=1,udp,ct_state=+trk+est,actions=output:{OUT}"),
    ];
    let sources = flows.div_ceil(1000);
    if translated {
        rules.push("table=1,udp,ct_state=+trk+new,nw_src=10.99.0.0/16,actions=resubmit(,2)".to_string());
        // Replies that come before the first packet of their connection.
        rules.push(format!("table=1,priority=1,udp,actions=output:{OUT}"));
        rules.extend((0..sources).map(|n| {
            let to = format!("192.0.2.{}", 1 + n / SHARING);
            format!(
                "table=2,udp,nw_src=10.99.0.{n},actions=ct(zone={zone},commit,nat(src={to})),output:{OUT}"
            )
        }));
    } else {
        rules.push(format!("table=1,udp,ct_state=+trk+new,actions=ct(zone={zone},commit),output:{OUT}"));
    }
    let what = if translated { ", source translated to 20 addresses" } else { "" };
    // New connections end some seconds after the last of them, and so do replies without one.
    let new = if translated { sources as usize + 2 } else { 1 };
    Ok(Work {
        id: format!("{flows}{suffix}"),
        title: format!("{flows} tracked connections{what}"),
        rules,
        sources: vec![Source { port: 1, file, tunnel: Tunnel::None }],
        may_end: new,
        established: true,
        megaflows: 2 + new,
    })
}

/// 16 subtables, two for each of eight ports. With `each` of 2, a port's packets are spread evenly; with 1,
/// nearly all belong to one, and one of [`RARE`] keeps the other alive.
pub(crate) fn shared_subtables(folder: &TempDir, each: u32) -> Result<Work> {
    let frames = Frames::new(0, FRAMES_A_MASK);
    let (mut rules, mut sources) = (Vec::new(), Vec::new());
    for port in 1..=PORTS {
        let counts = if each == 1 { [RARE - 1, 1] } else { [FRAMES_A_MASK; 2] };
        let mut all = Vec::new();
        for (bit, count) in [port - 1, PORTS + port - 1].into_iter().zip(counts) {
            let (to, prefix) = leading(bit);
            rules.push(format!("in_port={port},ip,nw_dst={prefix},actions=output:{OUT}"));
            all.extend((0..count).map(|flow| frame(&frames, flow, Some(to))));
        }
        let file = write(folder.path(), &format!("each{each}-port{port}.pcap"), all)?;
        sources.push(Source { port, file, tunnel: Tunnel::None });
    }
    let rarely =
        if each == 1 { format!(" (and one packet in {RARE} of each another one)") } else { String::new() };
    Ok(Work {
        id: format!("{each}"),
        title: format!("{SUBTABLES} subtables, {PORTS} ports each using {each}{rarely}"),
        rules,
        sources,
        may_end: 0,
        established: false,
        megaflows: SUBTABLES as usize,
    })
}
