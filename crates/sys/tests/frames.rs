//! Frames and namespaces on a veth pair.

use std::time::Duration;

use sys::frames::{
    BURST_MAX, Burst, FilterOp, FrameReceiver, FrameSender, SNAP_BYTES, device_index, wall_ns,
};
use sys::netns::NetNs;
use testkit::{Cmd, wait_for};

const LIMIT: Duration = Duration::from_secs(10);
/// Accept everything; load byte 14 and accept only frames in which it is 1.
const ALL: [FilterOp; 1] = [FilterOp { code: 0x06, jump_true: 0, jump_false: 0, operand: u32::MAX }];
const ONES: [FilterOp; 4] = [
    FilterOp { code: 0x30, jump_true: 0, jump_false: 0, operand: 14 },
    FilterOp { code: 0x15, jump_true: 0, jump_false: 1, operand: 1 },
    FilterOp { code: 0x06, jump_true: 0, jump_false: 0, operand: u32::MAX },
    FilterOp { code: 0x06, jump_true: 0, jump_false: 0, operand: 0 },
];

/// A frame of an experimental type (IEEE 802) with this byte after its header.
fn frame(byte: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[6] = 2;
    frame[12..15].copy_from_slice(&[0x88, 0xb5, byte]);
    frame
}

/// Calls `work` in a new namespace with a veth pair `left`, `right`, both up and silent.
fn with_pair(work: impl FnOnce() + Send) {
    let netns = NetNs::new().unwrap();
    netns
        .run(|| {
            for line in [
                "link add name left type veth peer name right",
                "link set left addrgenmode none",
                "link set right addrgenmode none",
                "link set left up",
                "link set right up",
            ] {
                Cmd::new("ip").args(line.split(' ')).run().unwrap();
            }
            work();
        })
        .unwrap();
}

/// Receives that many frames: their byte after the header, length and timestamp.
fn receive(receiver: &FrameReceiver, count: usize) -> Vec<(u8, usize, Option<u64>)> {
    let (mut burst, mut all) = (Burst::default(), Vec::new());
    wait_for(LIMIT, "frames", || {
        receiver.wait(Duration::from_millis(10)).unwrap();
        assert!(receiver.receive(&mut burst).unwrap() <= BURST_MAX);
        all.extend(burst.frames().map(|f| (f.bytes[14], f.bytes.len(), f.stamp_ns)));
        all.len() >= count
    })
    .unwrap();
    all
}

#[test]
fn frames_arrive_in_order_with_the_time() {
    testkit::require_netns!();
    with_pair(|| {
        let receiver = FrameReceiver::new(device_index("right").unwrap(), &ALL, 1 << 20).unwrap();
        let sender = FrameSender::new().unwrap();
        let frames: Vec<Vec<u8>> = (0..100).map(|n| frame(n, 60 + 4 * usize::from(n))).collect();
        let device = device_index("left").unwrap();
        let before = wall_ns();
        let mut out: Vec<(u32, &[u8])> = frames.iter().map(|f| (device, &f[..])).collect();
        while !out.is_empty() {
            let sent = sender.send(&out).unwrap();
            assert!((1..=BURST_MAX).contains(&sent));
            out.drain(..sent);
        }
        let got = receive(&receiver, 100);
        let after = wall_ns();
        for (n, (byte, length, stamp)) in got.iter().enumerate() {
            assert_eq!((usize::from(*byte), *length), (n, (60 + 4 * n).min(SNAP_BYTES)));
            assert!(stamp.is_some_and(|at| before <= at && at <= after), "{before} {stamp:?} {after}");
        }
        assert_eq!(receiver.take_drops().unwrap(), 0);
        assert_eq!(sender.send(&[]).unwrap(), 0);
    });
}

#[test]
fn filters_choose_and_full_sockets_are_reported() {
    testkit::require_netns!();
    with_pair(|| {
        let receiver = FrameReceiver::new(device_index("right").unwrap(), &ONES, 1).unwrap();
        let sender = FrameSender::new().unwrap();
        let device = device_index("left").unwrap();
        let (one, two) = (frame(1, 60), frame(2, 60));
        sender.send(&[(device, &two), (device, &one), (device, &two)]).unwrap();
        let got = receive(&receiver, 1);
        assert_eq!(got.iter().map(|(byte, length, _)| (*byte, *length)).collect::<Vec<_>>(), [(1, 60)]);
        // The kernel's minimum buffer holds a few frames.
        for _ in 0..100 {
            sender.send(&[(device, &one), (device, &two)]).unwrap();
        }
        let kept = receive(&receiver, 1).len() as u64;
        assert_eq!(receiver.take_drops().unwrap(), 100 - kept);
        assert_eq!(receiver.take_drops().unwrap(), 0);
    });
}

#[test]
fn devices_that_are_not_there_or_down_are_errors() {
    testkit::require_netns!();
    with_pair(|| {
        assert!(device_index("nothing").is_err());
        assert!(FrameReceiver::new(9999, &ALL, 1 << 20).is_err());
        let sender = FrameSender::new().unwrap();
        assert!(sender.send(&[(9999, &frame(1, 60))]).is_err());
        Cmd::new("ip").args(["link", "set", "left", "down"]).run().unwrap();
        assert!(sender.send(&[(device_index("left").unwrap(), &frame(1, 60))]).is_err());
    });
}

#[test]
fn a_namespace_is_another_and_has_a_path() {
    testkit::require_netns!();
    let netns = NetNs::new().unwrap();
    let id = |netns: &NetNs| std::fs::read_link(netns.path()).unwrap();
    let inside = netns.run(|| id(&NetNs::current().unwrap())).unwrap();
    assert_eq!(inside, id(&netns));
    assert_ne!(inside, id(&NetNs::current().unwrap()));
}
