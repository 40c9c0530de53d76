//! Receive queues of a process that has ended without a word: the next one receives from the oldest frame on.

use dpif::{PortOptions, PortSpec};
use netdev::{Lending, RxMethod, SystemOptions};
use packet::Packet;

use crate::helpers::*;

const RING: SystemOptionsOf =
    |slots| SystemOptions { rx_method: RxMethod::Ring, ring_slots: slots, ..SystemOptions::default() };
type SystemOptionsOf = fn(u32) -> SystemOptions;
const SLOTS: u32 = 64;

/// The next process opens the queue of one that has ended.
fn next_of(mut former: End, name: &str) -> End {
    let Lending::Queue(queue) = former.rx.lend().unwrap() else { panic!("the queue stays") };
    drop(former);
    let options = PortOptions::System(Default::default());
    let spec = PortSpec { name: name.to_owned(), options, mac: None, mtu: None, number: None };
    End::of(netdev::adopt(&spec, &SystemOptions::default(), vec![queue]).unwrap().device)
}

fn numbered(numbers: std::ops::Range<u32>) -> impl Iterator<Item = Packet> {
    numbers.map(|n| frame(n as u8, 64))
}

fn data(packets: &[Packet]) -> Vec<Vec<u8>> {
    packets.iter().map(|p| p.data().to_vec()).collect()
}

#[test]
fn a_ring_goes_on_at_its_oldest_frame() {
    in_netns(|| {
        // Frames that the former process took, and that wait: none, at the begin, over the end, as many as fit.
        for (taken, waiting) in
            [(0, 0), (0, 10), (10, 30), (60, 0), (64, 0), (100, 20), (50, 64), (0, 64), (7, 64)]
        {
            veth("v0", "v1");
            let mut sender = End::system("v1", &SystemOptions::default());
            let mut former = End::system("v0", &RING(SLOTS));
            for n in 0..taken {
                sender.send(numbered(n..n + 1));
                assert_eq!(former.recv(1).len(), 1, "{taken} {waiting}");
            }
            sender.send(numbered(taken..taken + waiting));
            let mut next = next_of(former, "v0");
            let expected: Vec<Packet> = numbered(taken..taken + waiting).collect();
            assert_eq!(data(&next.recv(expected.len())), data(&expected), "{taken} {waiting}");
            // And in the order of the ring from then on.
            for n in 0..SLOTS + 5 {
                sender.send(numbered(n..n + 1));
                assert_eq!(
                    data(&next.recv(1)),
                    data(&numbered(n..n + 1).collect::<Vec<_>>()),
                    "{taken} {waiting} {n}"
                );
            }
            drop((next, sender));
            ip("link del v0");
        }
    });
}

#[test]
fn long_frames_of_a_ring_are_neither_lost_nor_shifted() {
    in_netns(|| {
        veth("v0", "v1");
        let mut sender = End::system("v1", &SystemOptions::default());
        let former = End::system("v0", &RING(SLOTS));
        let long = |bytes| tcp_super_frame(bytes, 1000, None);
        let is_long = |p: &Packet| p.len() > 2000;
        sender.send([frame(0, 64), long(5000), frame(1, 64), long(6000)]);
        let mut next = next_of(former, "v0");
        let mut lengths: Vec<usize> =
            next.recv_where(4, |p| is_test_frame(p) || is_long(p)).iter().map(Packet::len).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [64, 64, 5054, 6054]);
        for bytes in [7000, 8000] {
            sender.send([long(bytes)]);
            assert_eq!(next.recv_where(1, is_long)[0].len(), 54 + usize::from(bytes as u16));
        }
    });
}

#[test]
fn frames_in_a_socket_and_in_a_ring_that_grew_wait() {
    in_netns(|| {
        veth("v0", "v1");
        let mut sender = End::system("v1", &SystemOptions::default());
        let mut former = End::system("v0", &SystemOptions::default());
        sender.send(numbered(0..3));
        assert_eq!(former.recv(3).len(), 3);
        sender.send(numbered(3..100));
        let mut next = next_of(former, "v0");
        assert_eq!(data(&next.recv(97)), data(&numbered(3..100).collect::<Vec<_>>()));
    });
}

#[test]
fn the_queues_of_another_device_are_refused() {
    in_netns(|| {
        veth("v0", "v1");
        let mut former = End::system("v0", &SystemOptions::default());
        let Lending::Queue(queue) = former.rx.lend().unwrap() else { panic!("the queue stays") };
        drop(former);
        // Another device of that name.
        ip("link del v0");
        veth("v0", "v1");
        let options = PortOptions::System(Default::default());
        let spec = PortSpec { name: "v0".to_owned(), options, mac: None, mtu: None, number: None };
        let adopted = netdev::adopt(&spec, &SystemOptions::default(), vec![queue]);
        assert!(adopted.is_err_and(|e| e.to_string().contains("another device")));
    });
}
