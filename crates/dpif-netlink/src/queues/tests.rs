//! Bounds and fairness of the queues.

use super::*;
use dpif::PmdId;
use dpif::testing::{self, SLOW};
use flow::Ufid;

fn upcall(port: u32, name: u128, kind: UpcallKind) -> Box<Upcall> {
    testing::upcall(DpPort(port), name, kind, PmdId::None)
}

#[test]
fn a_flood_fills_its_own_queue_and_is_counted() {
    let mut queues = Queues::default();
    let states: Vec<Arc<PortUpcalls>> = (0..3).map(|_| Arc::default()).collect();
    let mut push = |port: usize, name, kind| {
        let upcall = upcall(port as u32, name, kind);
        let has_room = queues.has_room(&upcall);
        let taken = queues.push(upcall, || states[port].clone());
        assert_eq!(taken, has_room);
        taken
    };
    let taken = (0..2 * MISSES_PER_PORT).filter(|n| push(1, *n as u128, UpcallKind::Miss)).count();
    assert_eq!(taken, MISSES_PER_PORT);
    // The other kind has its own room, and so has another port.
    assert!(push(1, 9000, SLOW) && push(2, 9001, UpcallKind::Miss));
    assert_eq!(states[1].refused.load(Ordering::Relaxed), MISSES_PER_PORT as u64);
    assert_eq!((states[1].waiting.load(Ordering::Relaxed), queues.len()), (513, 514));
    assert_eq!([1, 2, 3].map(|n| queues.room(DpPort(n))), [0, ACTIONS_PER_PORT, ACTIONS_PER_PORT]);
    assert_eq!([1, 2, 3].map(|n| queues.is_empty(DpPort(n))), [false, false, true]);
    // A port with few upcalls waits for no round of the other.
    let first = queues.take(4);
    assert!(first.iter().any(|u| u.rx_port == DpPort(2)), "{first:?}");
    assert!(first.iter().any(|u| u.ufid == Ufid(9000)), "the kinds take turns: {first:?}");
    let mut misses: Vec<u128> = first.iter().map(|u| u.ufid.0).collect();
    misses.extend(queues.drain().iter().map(|u| u.ufid.0));
    misses.retain(|n| *n < 9000);
    assert_eq!(misses, (0..MISSES_PER_PORT as u128).collect::<Vec<_>>(), "in order");
    assert!(queues.take(1).is_empty() && states.iter().all(|s| s.waiting.load(Ordering::Relaxed) == 0));
}

#[test]
fn a_removed_port_leaves_nothing() {
    let (mut queues, state) = (Queues::default(), Arc::new(PortUpcalls::default()));
    assert!(queues.push(upcall(1, 1, UpcallKind::Miss), || state.clone()));
    state.gone.store(true, Ordering::Relaxed);
    assert_eq!(queues.take(64).len(), 1);
    assert!(queues.take(64).is_empty());
    assert_eq!(Arc::strong_count(&state), 1);
}

#[test]
fn control_packets_of_bfd_go_first() {
    let (mut queues, state) = (Queues::default(), Arc::new(PortUpcalls::default()));
    for n in 0..MISSES_PER_PORT as u128 {
        assert!(queues.push(upcall(1, n, UpcallKind::Miss), || state.clone()));
    }
    let mut session = upcall(1, 9000, SLOW);
    let base = &mut session.key.base;
    (base.dl_type, base.nw_proto, base.tp_dst) = (0x0800, 17, 3784);
    assert!(queues.push(session, || state.clone()));
    assert_eq!(queues.room(DpPort(1)), 0);
    let taken = queues.take(4);
    assert_eq!((taken.len(), taken[0].ufid, queues.ahead()), (4, Ufid(9000), 3));
    assert_eq!(queues.drain().len(), MISSES_PER_PORT - 3);
    assert!(queues.is_empty(DpPort(1)) && state.waiting.load(Ordering::Relaxed) == 0);
}
