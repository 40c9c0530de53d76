use super::super::scheduler::SchedulerThread;
use super::*;
use dpif::qos::{Discipline, Queue, Rates};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const LINK: LinkFacts = LinkFacts { mtu: 1500, speed_bps: 0 };

/// Counts what is sent, and the queues of it.
#[derive(Clone, Default)]
struct Sink {
    sent: Arc<AtomicU64>,
    is_down: Arc<AtomicBool>,
}

impl Sink {
    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl TxQueue for Sink {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        if self.is_down.load(Ordering::Relaxed) {
            report.count_drops(TxDrop::PortDown, batch.len());
        } else {
            batch.packets().iter().for_each(|p| report.count_sent(p.len()));
        }
        self.sent.fetch_add(report.sent_packets, Ordering::Relaxed);
        batch.free_into(pool);
        report
    }
}

fn batch_of(packets: usize, queue: u16) -> PacketBatch {
    let mut batch = PacketBatch::new();
    for _ in 0..packets {
        let mut p = Packet::from_slice(&[0; 1000]);
        p.set_queue(queue);
        batch.push(p);
    }
    batch
}

fn qos(discipline: Discipline, queues: &[(u32, Queue)]) -> Qos {
    Qos { discipline, queues: queues.iter().copied().collect() }
}

fn send(egress: &PortEgress, sink: &mut Sink, packets: usize, queue: u16) -> TxReport {
    egress.send(sink, &mut batch_of(packets, queue), &mut PacketPool::new())
}

#[test]
fn packets_beyond_a_policers_burst_are_dropped() {
    let (egress, mut sink) = (PortEgress::default(), Sink::default());
    assert!(!egress.is_active());
    egress.police(&qos(Discipline::EgressPolicer { cir: 1, cbs: 3000 }, &[]), 0).unwrap();
    assert!(egress.is_active());
    let report = send(&egress, &mut sink, 7, 0);
    assert_eq!((report.sent_packets, report.dropped(TxDrop::Policed), sink.sent()), (3, 4, 3));
    // Refused settings end it.
    assert!(egress.police(&qos(Discipline::EgressPolicer { cir: 0, cbs: 3000 }, &[]), 0).is_err());
    assert!(!egress.is_active() && egress.shown().is_none());

    let rates = Rates { cir: 1, cbs: 5000, eir: 0, ebs: 0 };
    let queue = Queue { rates: Rates { cbs: 1000, ..rates }, ..Queue::default() };
    let wrong = Queue { rates: Rates { cbs: 0, ..rates }, ..Queue::default() };
    let two = qos(Discipline::Trtcm(rates), &[(4, queue), (5, wrong)]);
    let fault = "trtcm-policer: queue 5: cir needs cbs, the bytes of a burst";
    assert_eq!(egress.police(&two, 0), Err(fault.to_string()));
    assert_eq!(send(&egress, &mut sink, 7, 4).sent_packets, 1);
    assert_eq!(send(&egress, &mut sink, 7, 5).sent_packets, 4);
    assert_eq!(egress.queues(0).unwrap().len(), 2);
    egress.clear();
    assert!(!egress.is_active() && egress.queues(0).is_none());
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what} does not come");
}

#[test]
fn the_scheduler_sends_what_it_was_given_and_ends() {
    let (egress, mut sink, thread) = (PortEgress::default(), Sink::default(), SchedulerThread::default());
    let htb = |max_rate| qos(Discipline::Htb { max_rate }, &[(1, Queue::default())]);
    let other = sink.clone();
    let serve = || thread.serve(&htb(1_000_000_000), LINK, Box::new(other.clone())).unwrap();
    egress.schedule(serve());
    assert_eq!(send(&egress, &mut sink.clone(), 200, 1).sent_packets, 200);
    wait_for("all packets", || sink.sent() == 200);

    // At a byte a second: what finds no room is dropped, and the rest leaves when the scheduler ends.
    assert!(egress.reschedule(&htb(8), LINK));
    let sent: u64 = (0..40).map(|_| send(&egress, &mut sink, 100, 0).sent_packets).sum();
    let queued = |egress: &PortEgress| egress.queues(0).unwrap()[0];
    assert!((1000..1010).contains(&sent), "{sent}");
    assert_eq!(queued(&egress).tx_errors, 4000 - sent);
    egress.clear();
    wait_for("the packets that waited", || sink.sent() == 200 + sent);
    wait_for("the end of the thread", || thread.serves() == 0);

    // Losses at a device that is down are told by a later batch.
    egress.schedule(serve());
    sink.is_down.store(true, Ordering::Relaxed);
    let mut reports = TxReport::default();
    wait_for("a late loss", || {
        reports.add(&send(&egress, &mut sink, 1, 0));
        reports.dropped(TxDrop::PortDown) > 0
    });
    assert_eq!(sink.sent(), 200 + sent);
}
