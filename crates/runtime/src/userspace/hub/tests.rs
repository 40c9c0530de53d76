//! Upcalls that end with their port.

use super::*;
use flow::FlowKey;

fn miss(port: DpPort) -> Upcall {
    Upcall {
        kind: UpcallKind::Miss,
        packet: packet::Packet::from_slice(&[0; 60]),
        key: FlowKey::default(),
        ufid: flow::Ufid(1),
        pmd: dpif::PmdId::Core(0),
        rx_port: port,
        ticket: None,
        received_us: 0,
    }
}

#[test]
fn what_waits_for_a_port_that_goes_is_counted() {
    let (hub, mut handlers) = UpcallHub::new(1);
    let queues = [1, 2].map(|n| hub.port_add(DpPort(n)));
    for _ in 0..5 {
        queues.iter().for_each(|q| q.push(miss(q.port)).expect("there is room"));
    }
    hub.port_del(DpPort(1));
    assert_eq!(hub.ended_with_port(), 5);
    let left = handlers[0].take(Duration::ZERO);
    assert!(left.len() == 5 && left.iter().all(|u| u.rx_port == DpPort(2)));
    hub.port_del(DpPort(2));
    assert_eq!(hub.ended_with_port(), 5);
}
