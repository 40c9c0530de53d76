//! Large segments inside UDP tunnels, over veth pairs and taps.

use netdev::{Port, SystemOptions, TapOptions, TxDrop};
use packet::{GsoKind, Packet, PacketBatch, PacketPool, checksum, join, segment};

use crate::helpers::*;

/// Bytes of outer headers: Ethernet, IPv4, UDP, VXLAN.
const OUTER_BYTES: usize = 50;

/// A large segment of TCP behind VXLAN, whose outer UDP has a checksum in each frame if so.
fn tunneled(payload_bytes: usize, has_sum: bool) -> Packet {
    let mut p = tcp_super_frame(payload_bytes, 1398, None);
    let udp_bytes = (p.len() + 16) as u16;
    let mut outer = vec![2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4, 8, 0];
    outer.extend([0x45, 0]);
    outer.extend((20 + udp_bytes).to_be_bytes());
    outer.extend([0, 9, 0x40, 0, 64, 17, 0, 0, 172, 31, 0, 1, 172, 31, 0, 2]);
    let sum = checksum::checksum(&outer[14..34]);
    outer[24..26].copy_from_slice(&sum.to_be_bytes());
    outer.extend([0x9c, 0x40, 0x12, 0xb5]);
    outer.extend(udp_bytes.to_be_bytes());
    outer.extend([0, u8::from(has_sum), 8, 0, 0, 0, 0, 0, 5, 0]);
    assert_eq!(outer.len(), OUTER_BYTES);
    p.prepend(&outer);
    p
}

fn cut(p: &Packet) -> Vec<Vec<u8>> {
    let mut frames = PacketBatch::new();
    segment(p, &mut PacketPool::new(), &mut frames).expect("a large segment");
    frames.drain().map(|p| p.data().to_vec()).collect()
}

fn is_outer(p: &Packet) -> bool {
    p.data().get(23) == Some(&17) && p.data().get(36..38) == Some(&[0x12, 0xb5])
}

/// All sockets and both methods, with and without merging.
#[test]
fn a_packet_socket_sends_them_as_outer_datagrams() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        for (own_tx_sockets, sendmmsg, has_sum) in
            [(true, true, true), (true, true, false), (true, false, true), (false, true, true)]
        {
            let options = SystemOptions { own_tx_sockets, sendmmsg, ..SystemOptions::default() };
            let mut a = End::system("sl-a", &options);
            let mut b = End::system("sl-b", &options);
            let sent = tunneled(65_000, has_sum);
            // Devices compute the checksum of each datagram that they split.
            let wanted = cut(&tunneled(65_000, true));
            let report = a.send([frame(1, 60), sent.clone(), tunneled(500, has_sum), frame(2, 60)]);
            assert_eq!((report.sent_packets, report.generated_packets), (4, 0), "{report:?}");
            let got = b.recv_where(5, |p| is_outer(p) || is_test_frame(p));
            assert_eq!(got.len(), 5);
            assert_eq!((got[0].data(), got[4].data()), (frame(1, 60).data(), frame(2, 60).data()));
            let runs = &got[1..3];
            if runs.iter().any(|p| p.offload.gso != GsoKind::UdpL4) {
                return println!("SKIP: large UDP segments: this kernel takes none from packet sockets");
            }
            assert_eq!(runs.iter().flat_map(cut).collect::<Vec<_>>(), wanted);
            assert_eq!(got[3].data(), cut(&tunneled(500, has_sum))[0], "one frame keeps its checksum");
            let mut inner = Vec::new();
            for run in runs {
                let mut run = run.clone();
                assert!(join(&mut run, 34, OUTER_BYTES));
                inner.extend(cut(&run));
            }
            let frames: Vec<_> = wanted.iter().map(|f| f[OUTER_BYTES..].to_vec()).collect();
            assert_eq!(inner, frames);
        }
    });
}

/// A device that segments no UDP: the kernel does. And software, if large segments are off.
#[test]
fn they_are_cut_where_the_device_takes_none() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        let plain = SystemOptions::default();
        let merges_none = SystemOptions { merge_udp: false, ..plain.clone() };
        let finished = SystemOptions { tx_offload: false, ..plain.clone() };
        for (options, by_kernel) in [(merges_none, false), (finished, false), (plain.clone(), true)] {
            if by_kernel {
                run("ethtool -K sl-a tx-udp-segmentation off");
            }
            let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &plain));
            for has_sum in [true, false] {
                let wanted = cut(&tunneled(30_000, has_sum || by_kernel));
                let report = a.send([tunneled(30_000, has_sum)]);
                let generated = if by_kernel { 0 } else { wanted.len() as u64 - 1 };
                assert_eq!((report.generated_packets, report.dropped_packets()), (generated, 0));
                let mut got = b.recv_where(wanted.len(), is_outer);
                got.iter_mut().for_each(packet::complete_checksum);
                assert_eq!(got.iter().map(Packet::data).collect::<Vec<_>>(), wanted);
                assert!(got.iter().all(|p| !p.offload.is_gso()));
            }
        }
    });
}

/// As single frames are, cut by the kernel or by software.
#[test]
fn frames_beyond_the_mtu_are_dropped() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        for merge_udp in [true, false] {
            for (mtu, fits) in [(1488, true), (1487, false)] {
                ip(&format!("link set sl-a mtu {mtu}"));
                let options = SystemOptions { merge_udp, ..SystemOptions::default() };
                let mut a = End::system("sl-a", &options);
                let sent = tunneled(5 * 1398, true);
                let frames = if merge_udp { 1 } else { cut(&sent).len() as u64 };
                let report = a.send([sent, frame(1, 60)]);
                let dropped = if fits { 0 } else { frames };
                assert_eq!(report.dropped(TxDrop::TooLarge), dropped, "{mtu}: {report:?}");
                assert_eq!(report.sent_packets, 1 + frames - dropped);
            }
        }
    });
}

/// A tap gets frames.
#[test]
fn a_tap_gets_frames() {
    in_netns(|| {
        let mut tap = End::of(Port::open_tap("sl-t0", &TapOptions::default()).unwrap());
        ip("link set sl-t0 up");
        let mut host = End::system("sl-t0", &SystemOptions::default());
        let wanted = cut(&tunneled(30_000, true));
        let report = tap.send([tunneled(30_000, true)]);
        assert_eq!(report.sent_packets, wanted.len() as u64);
        let got = host.recv_where(wanted.len(), is_outer);
        assert_eq!(got.iter().map(Packet::data).collect::<Vec<_>>(), wanted);
    });
}
