//! Tests of ids, sharing and release.

use super::*;

fn state(n: u64) -> FrozenState {
    FrozenState {
        bridge: BridgeId(1),
        table: TableId(0),
        packet: PacketState { metadata: n, ..PacketState::received_by(flow::OfPort(1)) },
        steps: Vec::new(),
        resume_at: None,
        userdata: Vec::new(),
        bond: None,
    }
}

#[test]
fn equal_states_share_an_id_while_referenced() {
    let mut t = RecircTable::default();
    assert!(t.is_empty());
    let (a, b) = (t.hold_state(state(1)), t.hold_state(state(2)));
    assert_eq!((a, b), (Some(RecircId(1)), Some(RecircId(2))));
    assert_eq!((t.hold_state(state(1)), t.len()), (Some(RecircId(1)), 2));
    t.release(RecircId(1));
    assert_eq!(t.state(RecircId(1)).map(|s| s.packet.metadata), Some(1));
    t.release(RecircId(1));
    assert!(t.state(RecircId(1)).is_none() && !t.hold(RecircId(1)));
    // The state gets a new id: packets in flight under the old one must not use it.
    assert_eq!(t.hold_state(state(1)), Some(RecircId(3)));
    t.release(RecircId(77));
    assert_eq!(t.len(), 2);
}

#[test]
fn the_table_is_bounded() {
    let mut t = RecircTable::with_limit(8);
    for n in 0..8 {
        assert!(t.hold_state(state(n)).is_some());
    }
    assert_eq!(t.hold_state(state(u64::MAX)), None);
    assert!(t.hold_state(state(5)).is_some());
    t.release(RecircId(1));
    assert!(t.hold_state(state(u64::MAX)).is_some());
}
