use super::*;
use crate::ablation::Ablation;
use crate::inbox::Control;
use crate::offload::{Offloads, Providers};
use crate::plan::QueueId;
use crate::queues::Rx;
use crate::threads::PmdFactory;
use crate::upcall_queues::UpcallQueues;
use datapath::DpShared;
use dpif::actions::Output;
use dpif::{DpAction, FlowPut, PmdId};
use flow::extract::{Metadata, extract};
use flow::{DpPort, FlowKey, Ufid};
use std::sync::Arc;
use std::time::Duration;
use sync::{AtomicU64, Mutex, lock};

/// A readable queue; each poll asks `next` for the number of its frames.
struct Frames<F> {
    next: F,
    fd: sys::Waker,
}

impl<F: FnMut() -> usize> Frames<F> {
    fn of(next: F) -> Frames<F> {
        let fd = sys::Waker::new().unwrap();
        fd.wake();
        Frames { next, fd }
    }
}

impl<F: FnMut() -> usize + Send> netdev::RxQueue for Frames<F> {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.fd()
    }

    fn recv(
        &mut self,
        pool: &mut packet::PacketPool,
        batch: &mut packet::PacketBatch,
        most: usize,
    ) -> std::io::Result<usize> {
        let frames = (self.next)();
        assert!(frames <= most);
        for _ in 0..frames {
            let mut frame = pool.alloc(60);
            frame.set_frame(&[0; 60]);
            batch.push(frame);
        }
        Ok(frames)
    }

    fn counters(&self) -> netdev::RxCounters {
        netdev::RxCounters::default()
    }
}

/// A thread without ports, and its requests.
fn thread(ablation: Ablation) -> (PmdThread, Arc<Inbox>) {
    let inbox = Arc::new(Inbox::new().unwrap());
    let purged = Arc::new(Purged::default());
    let factory = PmdFactory {
        shared: Arc::new(DpShared::new(7)),
        offloads: Offloads::new(purged.clone(), Providers::default()),
        purged,
        portless: UpcallQueues::new().port_add(DpPort::NONE),
        hash_seed: 7,
        started: AtomicU64::new(0),
        all_cpus: vec![0],
        dummy_numa: Vec::new(),
        ablation,
    };
    let (core, offload) = (factory.core(PmdId::Core(0)), factory.offload(PmdId::Core(0)));
    let thread = PmdThread::new(core, factory.portless.clone(), inbox.clone(), offload, &factory.ablation);
    (thread, inbox)
}

fn add(thread: &mut PmdThread, port: u32, queue: impl netdev::RxQueue + 'static) {
    let id = QueueId { port: DpPort(port), queue: 0 };
    thread.rx.add(Rx::numbered(id, Box::new(queue), Default::default()));
}

#[test]
fn a_request_waits_for_one_burst_and_no_queue_for_more_than_a_round() {
    let (mut thread, inbox) = thread(Ablation::default());
    let asked = Arc::new(Mutex::new(Vec::new()));
    for port in 0..5 {
        // It always has a frame; each poll records it and sends a request.
        let (inbox, asked) = (inbox.clone(), asked.clone());
        let next = move || {
            lock(&asked).push(port);
            let (done, _) = std::sync::mpsc::sync_channel(1);
            let _none_left = inbox.request(Control::Clear(done));
            1
        };
        add(&mut thread, port, Frames::of(next));
    }
    for passes in 1..=10 {
        thread.rx.look(Some(Duration::ZERO), None);
        assert!(thread.poll_ready());
        assert_eq!(lock(&asked).len(), passes, "one burst, then the request");
        assert!(thread.handle_control().is_none());
    }
    assert_eq!(*lock(&asked), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

/// A queue with these numbers of frames, one after another. Each receive call takes two microseconds at least.
fn bursts(bursts: &[usize]) -> impl netdev::RxQueue + 'static {
    let mut left: std::collections::VecDeque<usize> = bursts.iter().copied().collect();
    Frames::of(move || {
        let begun_us = sys::clock::machine_us();
        while sys::clock::machine_us() < begun_us + 2 {
            std::hint::spin_loop();
        }
        left.pop_front().unwrap_or(0)
    })
}

/// Adds a port with these bursts, whose frames go to port 9.
fn forward(thread: &mut PmdThread, port: u32, frames: &[usize]) {
    thread.core.port_add(DpPort(port)).unwrap();
    let (mut key, mut mask) = (FlowKey::default(), FlowKey::default());
    extract(&[0; 60], &Metadata { in_port: port, ..Metadata::default() }, 1, &mut key);
    (mask.base.in_port, mask.base.recirc_id) = (u32::MAX, u32::MAX);
    (mask.base.dl_type, mask.base.shape) = (u16::MAX, u16::MAX);
    let actions: Arc<[DpAction]> = vec![DpAction::from(Output(DpPort(9)))].into();
    let put = FlowPut { ufid: Ufid(port.into()), key, mask, actions, mode: dpif::PutMode::Create };
    let ops = vec![DpifOp::FlowPut(Box::new(put))];
    thread.apply(OpBatch { pmd: PmdId::Core(0), ops, tag: 0, reply: None });
    add(thread, port, bursts(frames));
}

/// Frames and transmit calls so far.
fn sent(thread: &PmdThread) -> (u64, u64) {
    let stats = thread.core.stats();
    (stats.received, stats.sent_batches)
}

#[test]
fn bursts_of_a_round_and_of_further_ones_leave_together() {
    let (mut thread, _) = thread(Ablation::default());
    // However slow the machine is.
    thread.held = HeldOutput::new(1_000_000_000);
    // Without a device: its calls are counted all the same.
    thread.core.port_add(DpPort(9)).unwrap();
    forward(&mut thread, 1, &[2, 32, 5, 32, 0, 32]);
    forward(&mut thread, 2, &[1]);
    forward(&mut thread, 3, &[1]);
    let mut round = || {
        thread.rx.look(Some(Duration::ZERO), None);
        thread.poll_ready();
        sent(&thread)
    };
    assert_eq!(round(), (4, 1), "three queues");
    assert_eq!(round(), (36, 1), "a whole burst waits for the next round");
    assert_eq!(round(), (41, 2));
    assert_eq!(round(), (73, 2));
    assert_eq!(round(), (73, 3), "nothing more has come");
    assert_eq!(round(), (105, 3));
    thread.apply(OpBatch { pmd: PmdId::Core(0), ops: vec![DpifOp::Stats], tag: 0, reply: None });
    assert_eq!(sent(&thread), (105, 4), "an operation finds no output that waits");
}

#[test]
fn output_that_is_late_leaves_before_the_next_burst() {
    let (mut thread, _) = thread(Ablation::default());
    thread.held = HeldOutput::new(1);
    thread.core.port_add(DpPort(9)).unwrap();
    (1..=3).for_each(|port| forward(&mut thread, port, &[1]));
    // Each receive call takes longer than output waits.
    thread.rx.look(Some(Duration::ZERO), None);
    thread.poll_ready();
    assert_eq!(sent(&thread), (3, 3));
}

#[test]
fn bursts_leave_apart_if_told_so() {
    let (mut thread, _) = thread(Ablation::new([crate::ablation::Optimisation::Hold]));
    thread.core.port_add(DpPort(9)).unwrap();
    (1..=3).for_each(|port| forward(&mut thread, port, &[1]));
    thread.rx.look(Some(Duration::ZERO), None);
    thread.poll_ready();
    assert_eq!(sent(&thread), (3, 3));
}
