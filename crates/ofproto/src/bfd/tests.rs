//! Queues of sessions.

use super::*;
use sync::{Mutex, lock};

/// Notes the sessions that became ready.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl BfdInbox for Notes {
    fn ready(&self, session: &Arc<BfdState>) {
        lock(&self.0).push(session.name().to_string());
    }
}

#[test]
fn a_full_queue_loses_and_counts() {
    let notes = Arc::new(Notes::default());
    let state = Arc::new(BfdState::new("p1", notes.clone()));
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
    assert_eq!(packets[0], BfdPacket { ttl: 255, payload: None });
    state.count(1);
    assert_eq!(*lock(&notes.0), ["p1", "p1"]);
    assert_eq!(state.take(), (1, Vec::new()));
    assert!(!deliver(&[], &[0; 60]));
}
