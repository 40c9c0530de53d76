//! Frames of `afxdp` ports in the memory that the ports of a process share: a process of their own, one at a time.

#![allow(unsafe_code, reason = "system calls of the helpers")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use netdev::{AfxdpPort, Port, SystemOptions, XdpMode};
use packet::{BATCH_MAX_PACKETS, Packet, PacketBatch};

#[allow(dead_code, reason = "helpers of another test, too")]
#[path = "../net/helpers.rs"]
mod helpers;
use helpers::*;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(name: &str, mode: XdpMode) -> End {
    End::of(Port::open_afxdp(name, &AfxdpPort { mode, ..AfxdpPort::default() }).unwrap().0)
}

/// Two veth pairs: hosts `sl-h` and `sl-k`, and between them the ports `sl-a` and `sl-b`.
struct Wires {
    h: End,
    a: End,
    b: End,
    k: End,
    mode: XdpMode,
}

fn each_mode(f: impl Fn(&mut Wires) + Send + 'static) {
    let _alone = alone();
    in_netns(move || {
        for mode in [XdpMode::Native, XdpMode::Generic] {
            println!("{mode}");
            veth("sl-h", "sl-a");
            veth("sl-k", "sl-b");
            let (a, b) = (open("sl-a", mode), open("sl-b", mode));
            ["sl-h", "sl-a", "sl-k", "sl-b"].into_iter().for_each(wait_up);
            let host = |name| End::system(name, &SystemOptions::default());
            f(&mut Wires { h: host("sl-h"), a, b, k: host("sl-k"), mode });
            ip("link del sl-h");
            ip("link del sl-k");
        }
    });
}

impl Wires {
    /// A burst from the host to port a, as received there.
    fn receive(&mut self, round: u32, count: u32) -> Vec<Packet> {
        self.h.send((0..count).map(|i| numbered(round * count + i)));
        let got = self.a.recv(count as usize);
        assert_eq!(got.len(), count as usize, "round {round}");
        got
    }

    /// Forwards a burst from host to host; returns the frames that were not copied.
    fn forward(&mut self, round: u32) -> u64 {
        let got = self.receive(round, 32);
        let report = self.b.send(got);
        assert_eq!(report.sent_packets, 32, "{report:?}");
        let arrived = self.k.recv(32);
        let expected = (0..32).map(|i| numbered(round * 32 + i));
        assert!(arrived.iter().map(Packet::data).eq(expected.collect::<Vec<_>>().iter().map(Packet::data)));
        report.in_place_packets
    }
}

fn numbered(number: u32) -> Packet {
    let mut p = frame(number as u8, 64 + (number % 1400) as usize);
    p.data_mut()[20..24].copy_from_slice(&number.to_be_bytes());
    p
}

#[test]
fn frames_go_from_port_to_port_without_a_copy() {
    // More frames than chunks.
    each_mode(|wires| {
        for round in 0..400 {
            assert_eq!(wires.forward(round), 32, "round {round}");
        }
    });
}

#[test]
fn changed_frames_stay_in_place_and_copies_are_copies() {
    each_mode(|wires| {
        let mut got = wires.receive(1, 3);
        let copy = got[0].clone();
        got[1].insert(12, 4);
        got[1].data_mut()[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
        got[2].remove(12, 2);
        got[2].insert(12, 2);
        got[2].data_mut()[12..14].copy_from_slice(&TEST_ETH_TYPE.to_be_bytes());
        let sent: Vec<Vec<u8>> = got.iter().chain([&copy]).map(|p| p.data().to_vec()).collect();
        let report = wires.b.send(got.into_iter().chain([copy]));
        assert_eq!((report.sent_packets, report.in_place_packets), (4, 3), "{report:?}");
        assert!(wires.k.recv(4).iter().map(|p| p.data().to_vec()).eq(sent));
    });
}

#[test]
fn held_packets_starve_no_port_and_are_bounded() {
    each_mode(|wires| {
        let mut held = Vec::new();
        for round in 0..300 {
            held.extend(wires.receive(round, 32));
        }
        let lent = held.iter().filter(|p| p.chunk().is_some()).count();
        // The umem has 8,192 chunks, the sockets own half of them.
        assert_eq!(lent, 4096);
        assert!(held.iter().zip(0..).all(|(p, i)| p.data() == numbered(i).data()));
        assert_eq!(wires.forward(300), 0, "no chunk is left: all are copied");
        // Dropped by another thread.
        std::thread::spawn(move || drop(held)).join().unwrap();
        assert_eq!(wires.forward(301), 32);
    });
}

#[test]
fn packets_outlive_their_port() {
    each_mode(|wires| {
        let held = wires.receive(1, 32);
        assert!(held.iter().all(|p| p.chunk().is_some()));
        let Wires { h, a, b, k, mode } = wires;
        // The last transmit queue of port a goes with frames in its ring, the last receive queue with some unread.
        h.send((0..32).map(numbered));
        a.send((0..32).map(numbered));
        ip("link add sl-x type veth peer name sl-y");
        ip("link set sl-x up");
        ip("link set sl-y up");
        drop(std::mem::replace(a, open("sl-x", *mode)));
        let expected: Vec<Vec<u8>> = (32..64).map(|i| numbered(i).data().to_vec()).collect();
        assert!(held.iter().map(|p| p.data().to_vec()).eq(expected.clone()));
        let report = b.send(held);
        assert_eq!((report.sent_packets, report.in_place_packets), (32, 32), "{report:?}");
        assert!(k.recv(32).iter().map(|p| p.data().to_vec()).eq(expected));
        *a = open("sl-a", *mode);
        wait_up("sl-h");
        ip("link del sl-x");
        assert_eq!(wires.forward(2), 32, "the port is back in the same memory");
    });
}

#[test]
fn ports_that_come_and_go_keep_sharing() {
    each_mode(|wires| {
        ip("link add sl-x type veth peer name sl-y");
        for round in 0..30 {
            let Wires { h, a, mode, .. } = wires;
            drop(std::mem::replace(a, open("sl-x", *mode)));
            *a = open("sl-a", *mode);
            wait_up("sl-h");
            h.recv_for(1);
            assert_eq!(wires.forward(round), 32, "round {round}");
        }
        ip("link del sl-x");
    });
}

#[test]
fn a_port_alone_copies() {
    let _alone = alone();
    in_netns(|| {
        veth("sl-h", "sl-a");
        let mut a = open("sl-a", XdpMode::Native);
        wait_up("sl-h");
        let mut h = End::system("sl-h", &SystemOptions::default());
        h.send([numbered(1)]);
        let mut got = PacketBatch::new();
        assert!(wait(a.rx.as_ref(), 2000));
        a.rx.recv(&mut a.pool, &mut got, BATCH_MAX_PACKETS).unwrap();
        let p = &got.packets()[0];
        assert!(p.data() == numbered(1).data() && p.chunk().is_none());
    });
}
