//! Upcalls are dropped and counted with their port.

use super::*;

fn miss(port: DpPort) -> Box<Upcall> {
    dpif::testing::upcall(port, 1, UpcallKind::Miss, dpif::PmdId::Core(0))
}

#[test]
fn upcalls_dropped_with_their_port_are_counted() {
    let upcall_queues = UpcallQueues::new();
    let mut handlers = upcall_queues.set_handlers(1);
    let queues = [1, 2].map(|n| (DpPort(n), upcall_queues.port_add(DpPort(n))));
    for _ in 0..5 {
        queues.iter().for_each(|(port, q)| q.push(miss(*port)).expect("there is room"));
    }
    upcall_queues.port_del(DpPort(1));
    assert_eq!(upcall_queues.ended_with_port(), 5);
    let left = handlers[0].take(Duration::ZERO);
    assert!(left.len() == 5 && left.iter().all(|u| u.rx_port == DpPort(2)));
    upcall_queues.port_del(DpPort(2));
    assert_eq!(upcall_queues.ended_with_port(), 5);
}

/// Takes all waiting upcalls of a handler.
fn drain(handler: &mut Handler) -> Vec<DpPort> {
    let turns = std::iter::from_fn(|| Some(handler.take(Duration::ZERO)).filter(|taken| !taken.is_empty()));
    turns.flatten().map(|u| u.rx_port).collect()
}

#[test]
fn waiting_upcalls_move_to_their_ports_new_handler() {
    let upcall_queues = UpcallQueues::new();
    let queues = [1, 2, 3].map(|n| (DpPort(n), upcall_queues.port_add(DpPort(n))));
    let fill = || queues.iter().for_each(|(port, q)| q.push(miss(*port)).expect("there is room"));
    // No handler serves them yet.
    assert!(!queues[0].1.misses_wait());
    fill();
    let mut one = upcall_queues.set_handlers(1);
    fill();
    assert!(queues[0].1.misses_wait());
    assert_eq!(drain(&mut one[0]).len(), 6);
    assert!(!queues[0].1.misses_wait());
    fill();
    let mut two = upcall_queues.set_handlers(2);
    fill();
    assert_eq!(drain(&mut two[0]), [DpPort(2); 2]);
    let odd = drain(&mut two[1]);
    assert_eq!([1, 3].map(|n| odd.iter().filter(|p| p.0 == n).count()), [2, 2]);
    assert!(drain(&mut one[0]).is_empty());
}

/// The total is bounded, with any number of flooding ports, and each has its share.
#[test]
fn many_ports_that_flood_share_the_room_and_leave_some() {
    let upcall_queues = UpcallQueues::new();
    let mut handlers = upcall_queues.set_handlers(1);
    let ports: Vec<_> = (1..=500).map(|n| (DpPort(n), upcall_queues.port_add(DpPort(n)))).collect();
    let flood = || {
        for _ in 0..MISSES_PER_PORT {
            ports.iter().for_each(|(port, queues)| drop(queues.push(miss(*port))));
        }
    };
    for _ in 0..2 {
        flood();
        let waiting: Vec<u64> = ports.iter().map(|(_, queues)| queues.waiting()).collect();
        let (least, most) = (waiting.iter().min().unwrap(), waiting.iter().max().unwrap());
        assert!(most - least <= 1 && *most as usize <= ALL_MISSES / 500, "{least} to {most}");
        assert!(waiting.iter().sum::<u64>() > ALL_MISSES as u64 * 9 / 10);
        // A port with few upcalls has space all the same.
        let quiet = upcall_queues.port_add(DpPort(501));
        (0..10).for_each(|_| quiet.push(miss(DpPort(501))).expect("there is room"));
        assert_eq!(drain(&mut handlers[0]).len() as u64, waiting.iter().sum::<u64>() + 10);
    }
    // A few flooding ports have the same limit as before.
    let few = &ports[..10];
    for _ in 0..2 * MISSES_PER_PORT {
        few.iter().for_each(|(port, queues)| drop(queues.push(miss(*port))));
    }
    assert!(few.iter().all(|(_, queues)| queues.waiting() == MISSES_PER_PORT as u64));
    // A removed port frees its space.
    upcall_queues.port_del(DpPort(1));
    drain(&mut handlers[0]);
    assert_eq!(upcall_queues.all_misses.load(Ordering::Relaxed), 0);
}

#[test]
fn a_port_is_listed_once_while_it_holds_something() {
    let upcall_queues = UpcallQueues::new();
    let mut handlers = upcall_queues.set_handlers(1);
    let queues = upcall_queues.port_add(DpPort(1));
    for _ in 0..BATCH_MAX_UPCALLS + 1 {
        queues.push(miss(DpPort(1))).expect("there is room");
    }
    assert_eq!(std::iter::from_fn(|| handlers[0].listing.ports.pop()).count(), 1);
    // Unlisted by the test itself: as if the handler had it.
    handlers[0].drr.enter(queues.clone());
    assert_eq!(handlers[0].take_now().len(), BATCH_MAX_UPCALLS);
    assert_eq!((handlers[0].take_now().len(), queues.waiting()), (1, 0));
    assert!(handlers[0].take_now().is_empty());
    // Now it is empty, and is listed again.
    queues.push(miss(DpPort(1))).expect("there is room");
    assert_eq!(handlers[0].take_now().len(), 1);
}

#[test]
fn no_upcall_is_forgotten_between_threads() {
    let upcall_queues = UpcallQueues::new();
    let mut handlers = upcall_queues.set_handlers(1);
    let queues = upcall_queues.port_add(DpPort(1));
    let put = std::thread::scope(|s| {
        let writer = s.spawn(|| (0..50_000).filter(|_| queues.push(miss(DpPort(1))).is_ok()).count());
        let mut taken = 0;
        while !writer.is_finished() {
            taken += handlers[0].take(Duration::from_millis(1)).len();
        }
        writer.join().expect("the writer") - taken
    });
    assert_eq!(drain(&mut handlers[0]).len(), put);
}

#[test]
fn a_full_queue_has_no_room_and_gives_back() {
    let upcall_queues = UpcallQueues::new();
    let queues = upcall_queues.port_add(DpPort(1));
    while queues.has_room() {
        queues.push(miss(DpPort(1))).expect("there is room");
    }
    assert_eq!(queues.waiting(), MISSES_PER_PORT as u64);
    assert!(queues.push(miss(DpPort(1))).is_err());
    // Packets for controllers have a separate queue.
    let action =
        Upcall { kind: UpcallKind::Action(dpif::UserCookie::SlowPath { reasons: 1 }), ..*miss(DpPort(1)) };
    assert!(queues.push(Box::new(action)).is_ok());
}

/// Control packets of BFD, as misses and as packets of a slow flow.
fn session(port: DpPort, kind: UpcallKind) -> Box<Upcall> {
    let mut upcall = Upcall { kind, ..*miss(port) };
    let base = &mut upcall.key.base;
    (base.dl_type, base.nw_proto, base.tp_dst) = (0x0800, 17, 3784);
    Box::new(upcall)
}

#[test]
fn no_flood_delays_or_drops_control_packets() {
    let upcall_queues = UpcallQueues::new();
    let mut handlers = upcall_queues.set_handlers(1);
    let queues: Vec<_> = (1..=100).map(|n| (DpPort(n), upcall_queues.port_add(DpPort(n)))).collect();
    for _ in 0..2 * MISSES_PER_PORT {
        queues.iter().for_each(|(port, queue)| drop(queue.push(miss(*port))));
    }
    let slow = UpcallKind::Action(dpif::UserCookie::SlowPath {
        reasons: dpif::SlowReason::all()
            .find(|reason| reason.name() == "bfd")
            .expect("BFD is a reason")
            .bit(),
    });
    let (port, queue) = &queues[7];
    assert!(!queue.has_room());
    let first = session(*port, UpcallKind::Miss);
    assert!(queue.has_room_for(&first.key));
    assert!(queue.push(first).is_ok() && queue.push(session(*port, slow)).is_ok());
    let taken = handlers[0].take(Duration::ZERO);
    assert!(taken[..2].iter().all(|u| u.is_of_session()) && taken.len() == BATCH_MAX_UPCALLS);
    assert!(handlers[0].ahead() >= 2);
    // A flood of them fills its own queue, and takes half of each batch.
    while queue.push(session(*port, slow)).is_ok() {}
    assert!(!queue.has_room_for(&session(*port, slow).key));
    assert_eq!(queue.sessions.queue.len(), SESSIONS_PER_PORT);
    queues[8].1.push(session(DpPort(9), slow)).expect("there is room");
    let taken = handlers[0].take(Duration::ZERO);
    let of_sessions: Vec<DpPort> = taken.iter().filter(|u| u.is_of_session()).map(|u| u.rx_port).collect();
    assert_eq!((of_sessions.len(), taken.len()), (SESSIONS_AT_A_TIME, BATCH_MAX_UPCALLS));
    assert!(of_sessions.contains(&DpPort(9)));
    // Ports that flood share their total.
    for (port, queue) in &queues {
        while queue.push(session(*port, slow)).is_ok() {}
    }
    assert!(upcall_queues.all_sessions.load(Ordering::Relaxed) <= ALL_SESSIONS as u64);
    // They follow their port to another handler, and end with it.
    let mut handlers = upcall_queues.set_handlers(2);
    let next = handlers[0].take(Duration::ZERO);
    assert_eq!(next.iter().filter(|u| u.is_of_session()).count(), SESSIONS_AT_A_TIME);
    let waiting = queue.waiting();
    upcall_queues.port_del(*port);
    assert_eq!(upcall_queues.ended_with_port(), waiting);
}
