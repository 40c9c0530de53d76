use super::*;
use dpif::{DpifOp, OpBatch, PmdId};
use flow::DpPort;

#[test]
fn a_closed_inbox_gives_everything_back() {
    let inbox = Inbox::new().unwrap();
    let batch = |tag| OpBatch { pmd: PmdId::Core(0), ops: vec![DpifOp::Stats], tag, reply: None };
    assert!(inbox.offer(batch(1), false).is_ok_and(|left| left.is_empty()));
    assert!(inbox.request(Control::Ops(batch(2))).is_empty());
    inbox.close();
    let (done, answer) = std::sync::mpsc::sync_channel(1);
    let left = inbox.request(Control::PortDel(DpPort(1), Departure::default(), done));
    assert_eq!(left.iter().map(|b| b.tag).collect::<Vec<_>>(), [1, 2]);
    assert!(answer.recv().is_err(), "who asks is told that there is no answer");
    for (tag, ahead) in [(3, false), (4, true)] {
        assert_eq!(inbox.offer(batch(tag), ahead).ok().map(|left| left.len()), Some(1));
    }
}

#[test]
fn operations_that_go_ahead_are_taken_first() {
    let inbox = Inbox::new().unwrap();
    let offers = [(1, false), (2, true), (3, false), (4, true)];
    for (tag, ahead) in offers {
        let batch = OpBatch { pmd: PmdId::Core(0), ops: vec![DpifOp::Stats], tag, reply: None };
        assert!(inbox.offer(batch, ahead).is_ok_and(|left| left.is_empty()));
    }
    // A thread about to sleep sees either kind.
    inbox.sleep(|_| panic!("something waits"));
    assert_eq!(inbox.next_ahead().map(|b| b.tag), Some(2));
    assert_eq!(std::iter::from_fn(|| inbox.next_ops()).map(|b| b.tag).collect::<Vec<_>>(), [4, 1, 3]);
    assert!(inbox.next_ahead().is_none());
}
