//! Upcalls and executes.

use crate::{LIMIT, NO_PORT, next_upcall, with_switch};
use dpif::actions::{Output, PushVlan, Trunc, Userspace};
use dpif::{DpAction, Masked, PortsSet, SetAction, SlowReason, UserCookie, cookie, nlactions};
use flow::{DpPort, OfPort};
use netlink::ovs::{
    DpName, DpSet, Execute, RecvError, Reply, Request, UpcallBuffer, UpcallCmd, VportSet, features,
};

/// A numbered frame of this size.
fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame =
        [&[2, 0, 0, 0, 0, 1][..], &[2, 0, 0, 0, 0, 2], &[0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.resize(bytes, 0xa5);
    frame
}

#[test]
fn a_miss_and_a_userspace_action_are_received() {
    with_switch(|s| {
        s.send(&frame(1, 64));
        s.next_upcall(|u| {
            assert_eq!((u.dp_ifindex, u.cmd, u.packet), (s.dp, UpcallCmd::Miss, &frame(1, 64)[..]));
            assert_eq!((u.userdata, u.cookie()), (None, Ok(None)));
            assert_eq!(u.flow_key(2).unwrap().0.in_port(), s.far.number);
        });
        let why = UserCookie::SlowPath { reasons: SlowReason::Controller.bit() | SlowReason::Action.bit() };
        let up =
            [DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x1005 }), DpAction::Userspace(Userspace(why))];
        let done = s.ovs.operate_one(s.dp, s.execute(&frame(2, 64), &up)).unwrap();
        assert_eq!(done, Reply::Done);
        s.next_upcall(|u| {
            assert_eq!(u.cmd, UpcallCmd::Action);
            // With the previously pushed tag.
            assert_eq!(&u.packet[12..20], [0x81, 0, 0, 5, 0x88, 0xb5, 0, 0]);
            let info = cookie::CookieInfo { cookie: why, in_port: OfPort(7), bridge: *b"0123456789abcdef" };
            assert_eq!(u.cookie(), Ok(Some(info)));
            assert_eq!(u.flow_key(2).unwrap().0.in_port(), DpPort::NONE);
        });
        // A truncated packet carries its original length.
        let cut = [DpAction::Trunc(Trunc(20)), DpAction::Userspace(Userspace(why))];
        s.ovs.operate_one(s.dp, s.execute(&frame(3, 64), &cut)).unwrap();
        s.next_upcall(|u| assert_eq!((u.packet.len(), u.len_bytes), (20, Some(64))));
    });
}

#[test]
fn a_rejected_execute_has_its_own_error() {
    with_switch(|s| {
        let bytes = frame(1, 64);
        let ports =
            Masked { value: PortsSet { src: 1, dst: 2 }, mask: PortsSet { src: 0xffff, dst: 0xffff } };
        // This frame has no ports.
        let bad = s.execute(&bytes, &[DpAction::Set(SetAction::Tcp(ports))]);
        let good = s.execute(&bytes, &[DpAction::Output(Output(s.near.number))]);
        let replies = s.ovs.operate(s.dp, &[bad, good]);
        assert!(
            replies[0]
                .as_ref()
                .is_err_and(|e| e.to_string().starts_with("cannot execute actions on a packet: "))
        );
        assert!(replies[1].is_ok(), "{replies:?}");
        s.next_upcall(|u| assert_eq!(u.packet, bytes));
        let elsewhere = s.ovs.operate_one(NO_PORT.0, s.execute(&bytes, &[]));
        assert!(elsewhere.unwrap_err().is_no_device());
        let huge = vec![0; 70_000];
        let e = s.ovs.operate_one(s.dp, s.execute(&huge, &[])).unwrap_err();
        assert_eq!(
            e.to_string(),
            "cannot execute actions on a packet: attribute 1 would have 70000 bytes: 65531 fit"
        );
    });
}

#[test]
fn upcalls_arrive_in_batches_and_losses_are_reported() {
    with_switch(|s| {
        for n in 0..20 {
            s.send(&frame(n, 200));
        }
        let mut buffer = UpcallBuffer::new(16);
        let mut numbers = Vec::new();
        testkit::wait_for(LIMIT, "20 upcalls", || {
            let count = s.upcalls.recv_batch(&mut buffer).unwrap();
            assert!(count <= 16);
            let number = |p: &[u8]| u32::from_be_bytes([p[14], p[15], p[16], p[17]]);
            numbers.extend(buffer.upcalls().map(|u| number(u.unwrap().packet)));
            numbers.len() == 20
        })
        .unwrap();
        assert_eq!(numbers, (0..20).collect::<Vec<u32>>());

        let small = s.ovs.upcall_socket(4096).unwrap();
        assert!(small.receive_buffer_bytes() < 65536);
        let change = VportSet { upcall_pids: Some(vec![small.pid()]), tunnel: None };
        s.ovs.vport_set(s.dp, s.far.number, &change).unwrap();
        let before = s.ovs.dp_get(DpName::Ifindex(s.dp)).unwrap().stats;
        for n in 0..100 {
            s.send(&frame(n, 1400));
        }
        let stats = || s.ovs.dp_get(DpName::Ifindex(s.dp)).unwrap().stats;
        testkit::wait_for(LIMIT, "misses", || stats().missed == before.missed + 100).unwrap();
        let (mut reported, mut lost) = (0, 0);
        loop {
            match small.recv_batch(&mut buffer) {
                Ok(0) => break,
                Ok(_) => reported += buffer.upcalls().filter(|u| u.is_ok()).count(),
                Err(RecvError::Overrun) => lost += 1,
                Err(e) => panic!("{e}"),
            }
        }
        assert!(reported > 0 && lost > 0, "{reported} reported, {lost} times lost");
        assert_eq!(stats().lost - before.lost, 100 - reported as u64);
        // The socket stays usable.
        s.send(&frame(1000, 64));
        next_upcall(&small, |u| assert_eq!(u.packet.len(), 64));
    });
}

#[test]
fn upcalls_go_to_a_socket_by_processor() {
    with_switch(|s| {
        let sockets: Vec<_> = (0..64).map(|_| s.ovs.upcall_socket(65536).unwrap()).collect();
        let pids = sockets.iter().map(netlink::UpcallSocket::pid).collect();
        let set = DpSet {
            user_features: Some(features::UNALIGNED | features::DISPATCH_UPCALL_PER_CPU),
            per_cpu_pids: Some(pids),
            masks_cache_size: None,
        };
        let info = match s.ovs.dp_set(DpName::Ifindex(s.dp), &set) {
            Err(e) if e.is_unsupported() => return crate::skip("per-CPU upcalls", &e.to_string()),
            other => other.unwrap(),
        };
        assert_eq!(info.user_features, features::UNALIGNED | features::DISPATCH_UPCALL_PER_CPU);
        s.send(&frame(1, 64));
        let context = nlactions::ActionContext { upcall_pid: u32::MAX, ..s.context() };
        let up = [DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons: 0 }))];
        let Request::Execute(execute) = s.execute(b"0123456789abcdef", &[]) else { unreachable!() };
        let execute = Execute { actions: nlactions::actions_to_bytes(&up, &context).unwrap(), ..execute };
        s.ovs.operate_one(s.dp, Request::Execute(execute)).unwrap();
        let mut buffer = UpcallBuffer::new(4);
        let mut seen = Vec::new();
        testkit::wait_for(LIMIT, "upcalls", || {
            for socket in &sockets {
                socket.recv_batch(&mut buffer).unwrap();
                seen.extend(buffer.upcalls().map(|u| u.unwrap().cmd));
            }
            seen.len() == 2
        })
        .unwrap();
        assert!(seen.contains(&UpcallCmd::Miss) && seen.contains(&UpcallCmd::Action), "{seen:?}");
        assert!(crate::is_quiet(&s.upcalls));
    });
}
