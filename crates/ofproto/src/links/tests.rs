//! Queues of sessions.

use super::*;
use sync::{Mutex, lock};

/// Notes the sessions that became ready.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl LinkInbox for Notes {
    fn ready(&self, session: &Arc<LinkSession>) {
        lock(&self.0).push(session.name().to_string());
    }
}

#[test]
fn a_full_queue_loses_and_counts() {
    let notes = Arc::new(Notes::default());
    let state = Arc::new(LinkSession::new("p1", Protocol::Bfd, notes.clone()));
    let claimed = [Claimed { session: state.clone(), ttl: 255 }];
    for _ in 0..WAITING_MAX + 3 {
        assert!(deliver(&claimed, &[0; 60]));
    }
    state.count(0);
    state.count(7);
    // It is ready once, whatever comes.
    assert_eq!(*lock(&notes.0), ["p1"]);
    assert_eq!(state.lost(), 3);
    let (counted, packets) = state.take();
    assert_eq!((counted, packets.len()), (7, WAITING_MAX));
    assert_eq!(packets[0], ControlPacket { ttl: 255, payload: None });
    state.count(1);
    assert_eq!(*lock(&notes.0), ["p1", "p1"]);
    assert_eq!(state.take(), (1, Vec::new()));
    assert!(!deliver(&[], &[0; 60]));
}

#[test]
fn link_states_are_packed() {
    for bits in 0..8 {
        let state = unpack(bits);
        assert_eq!(pack(state), bits);
        assert_eq!(state == LinkState::UP, bits == 7);
    }
    for (phase, is_rapid) in PHASES.into_iter().flat_map(|phase| [(phase, false), (phase, true)]) {
        let state = LinkState::of_tree(TreeState { is_rapid, phase });
        assert_eq!(unpack(pack(state)), state);
    }
    let session = LinkSession::new("p1", Protocol::Bfd, Arc::new(Notes::default()));
    assert_eq!(session.state(), LinkState { is_live: false, ..LinkState::UP });
    let blocked = LinkState { may_forward: false, ..LinkState::UP };
    assert!(!session.set_state(blocked).is_live);
    assert_eq!(session.state(), blocked);
}
