//! A packet's headers are parsed once, also if it is recirculated by the connection tracker.
//!
//! Test builds count the parses of their thread.

use super::frames::{SRC, ipv4, l4, tcp, udp};
use super::tunnels::parsed;
use super::*;
use std::cell::Cell;

thread_local! {
    static PARSES: Cell<u64> = const { Cell::new(0) };
}

/// Counts parsed packets.
pub(crate) fn count(packets: usize) {
    PARSES.set(PARSES.get() + packets as u64);
}

/// Parses and recirculations of a burst of 32 packets, by flows with those lists: the first with `recirc(1)` at its end, and
/// so on.
fn of_burst(rig: &mut Rig, frame: &[u8], lists: &[&str]) -> (u64, u64) {
    rig.flow(1, frame, least_mask(), parsed(lists[0]));
    // The keys of the others are those of the misses.
    for list in &lists[1..] {
        rig.receive(1, &[frame.to_vec()]);
        let upcall = rig.io.upcalls.pop().expect("a miss");
        let (_, result) = rig.put(upcall.key, least_mask(), parsed(list));
        assert!(matches!(result, OpResult::Done), "{result:?}");
        rig.execute(upcall.packet, upcall.key, vec![], upcall.ticket);
    }
    rig.receive(1, &vec![frame.to_vec(); 32]);
    rig.sent();
    let before = (PARSES.get(), rig.pmd.stats().recirculated);
    rig.receive(1, &vec![frame.to_vec(); 32]);
    assert_eq!((rig.sent().len(), rig.io.upcalls.len()), (32, 0), "{lists:?}");
    (PARSES.get() - before.0, rig.pmd.stats().recirculated - before.1)
}

/// With the template of common packets, and without. (Without groups, as the oracle of other tests, it reads again.)
fn check(frame: &[u8], lists: &[&str], parses: u64) {
    for template in [true, false] {
        let mut rig = Rig::with(|c| c.template = template);
        let passes = lists.len() as u64 - 1;
        assert_eq!(
            of_burst(&mut rig, frame, lists),
            (parses, 32 * passes),
            "{lists:?}, template: {template}"
        );
    }
}

#[test]
fn tracked_packets_are_parsed_once() {
    let short_udp = udp(1000, 53);
    let padded_tcp = [tcp(1000, 80), vec![0; 20]].concat();
    let sctp = ipv4(132, SRC, [10, 0, 0, 9], 0, &l4(132, 5, 6, false));
    for frame in [&short_udp, &padded_tcp, &sctp] {
        check(frame, &["2"], 32);
        check(frame, &["ct(commit,zone=1),recirc(0x1)", "2"], 32);
        check(
            frame,
            &["ct(zone=1),recirc(0x1)", "ct(commit,zone=2,mark=0x5/0x5),recirc(0x2)", "ct_clear,2"],
            32,
        );
        // The addresses and ports of a translated packet are written into its key.
        check(frame, &["ct(commit,zone=1,nat(src=10.9.0.1)),recirc(0x1)", "2"], 32);
        check(frame, &["ct(commit,zone=1,nat(dst=10.9.0.1:99)),recirc(0x1)", "set(ipv4(ttl=9)),3"], 32);
    }
}

/// The counter sees a second parse: after actions that change the layout of the headers.
#[test]
fn packets_of_another_layout_are_parsed_again() {
    check(&udp(1000, 53), &["push_mpls(label=5,tc=0,ttl=9,bos=1,eth_type=0x8847),recirc(0x1)", "2"], 64);
}
