//! Requests of cores to the thread: bounds, order, and a thread that ends.

use super::*;
use datapath::{DpShared, Pmd, PmdConfig};
use dpif::{DpifError, ReplySink};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// A device whose puts wait for permission, or panic.
struct Slow {
    nic: Nic,
    entered: Sender<()>,
    go: Receiver<()>,
    panics: bool,
}

impl FlowOffload for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn put(&mut self, rule: &OffloadRule<'_>) -> Option<Accepted> {
        assert!(!self.panics, "the device of this test breaks down");
        let _ = self.entered.send(());
        // Without a sender any more, no wait.
        let _ = self.go.recv();
        self.nic.put(rule)
    }

    fn del(&mut self, id: RuleId) -> Option<FlowStats> {
        self.nic.del(id)
    }

    fn stats(&mut self, id: RuleId) -> Option<FlowStats> {
        self.nic.stats(id)
    }

    fn inserted(&self) -> u64 {
        self.nic.inserted()
    }
}

struct Replies(Sender<Vec<OpResult>>);

impl ReplySink for Replies {
    fn done(&self, _: PmdId, _: u64, results: Vec<OpResult>) {
        let _ = self.0.send(results);
    }
}

/// The offload of a datapath with one slow port, and its first core.
struct Rig {
    offloads: Arc<Offloads>,
    purged: Arc<Purged>,
    core: Pmd,
    side: CoreOffload,
    nic: Nic,
    entered: Receiver<()>,
    go: Sender<()>,
    replies: Receiver<Vec<OpResult>>,
    reply: Arc<Replies>,
}

impl Rig {
    fn new(panics: bool) -> Rig {
        let (nic, purged) = (Nic::default(), Arc::new(Purged::default()));
        let ((tell, entered), (go, gate), (reply, replies)) = (channel(), channel(), channel());
        let slow = Slow { nic: nic.clone(), entered: tell, go: gate, panics };
        let slow = Mutex::new(Some(Box::new(slow) as Box<dyn FlowOffload>));
        let offloads = Offloads::new(purged.clone(), Providers::new(move |_| lock(&slow).take()));
        let info = PortInfo { number: PORT, name: "p1".to_string(), type_name: "dummy".to_string() };
        let candidate = Candidate { info: &info, dummy: None, shared: &Arc::new(DpShared::new(7)) };
        offloads.port_add(&candidate);
        assert_eq!((offloads.stats(), offloads.is_on()), (None, false), "not enabled");
        offloads.enable();
        offloads.port_add(&candidate);
        let core = Pmd::new(PmdConfig::new(CORES[0], 7), Arc::new(DpShared::new(7)));
        let side = CoreOffload::new(offloads.clone(), CORES[0]);
        Rig { offloads, purged, core, side, nic, entered, go, replies, reply: Arc::new(Replies(reply)) }
    }

    fn answer(&self, kind: Kind, result: OpResult) {
        self.side.answer(1, Some(self.reply.clone()), vec![kind], vec![result]);
    }

    fn answered(&self) -> Vec<OpResult> {
        self.replies.recv_timeout(LIMIT).unwrap()
    }
}

#[test]
fn puts_beyond_the_queue_of_a_core_are_refused_and_answers_never() {
    let mut rig = Rig::new(false);
    let waiting = PUTS_WAITING_MAX as u32;
    rig.side.offer(&mut rig.core, flow(PORT, 0, 0));
    rig.entered.recv_timeout(LIMIT).unwrap();
    for n in 1..=waiting + 3 {
        rig.side.offer(&mut rig.core, flow(PORT, n, n.into()));
    }
    // Another core has its own queue; another port no device.
    let other = CoreOffload::new(rig.offloads.clone(), CORES[1]);
    other.offer(&mut rig.core, flow(PORT, 1, 1));
    other.offer(&mut rig.core, flow(DpPort(2), 1, 2));
    let stats = rig.offloads.stats().unwrap();
    assert_eq!((stats.enqueued, stats.refused), (u64::from(waiting) + 1, 3));
    let deleted = flow(PORT, 5, 5);
    rig.answer(Kind::Delete, OpResult::Flow(Box::new(record(&deleted, FlowStats::default()))));
    // Nothing about rules: at once.
    rig.answer(Kind::Other, OpResult::Done);
    assert!(matches!(rig.answered()[..], [OpResult::Done]));
    drop(rig.go);
    let answered = rig.replies.recv_timeout(LIMIT).unwrap();
    assert!(matches!(&answered[..], [OpResult::Flow(f)] if f.ufid == Ufid(5)));
    assert_eq!(
        rig.nic.inserted(),
        u64::from(waiting),
        "all accepted puts but the deleted one, shared ones once"
    );
    let stats = rig.offloads.stats().unwrap();
    assert_eq!((stats.enqueued, stats.refused, stats.inserted), (0, 3, u64::from(waiting)));
    rig.offloads.stop();
    assert_eq!(rig.nic.inserted(), 0);
}

#[test]
fn an_ended_thread_leaves_no_request_unanswered() {
    for panics in [false, true] {
        let mut rig = Rig::new(panics);
        let put = flow(PORT, 1, 1);
        if panics {
            rig.side.offer(&mut rig.core, put.clone());
        } else {
            rig.offloads.stop();
        }
        let own = counted(3, 30, 300);
        rig.answer(Kind::Read, OpResult::Flow(Box::new(record(&put, own))));
        assert!(matches!(&rig.answered()[..], [OpResult::Flow(f)] if f.stats == own));
        rig.side.ended(&mut rig.core, vec![record(&put, own)]);
        rig.answer(Kind::Read, OpResult::Failed(DpifError::NotFound("flow")));
        assert!(matches!(&rig.answered()[..], [OpResult::Failed(_)]));
        assert_eq!(rig.purged.pop().unwrap().1.stats, own);
        rig.offloads.port_del(PORT);
        assert_eq!(rig.nic.inserted(), 0);
    }
}
