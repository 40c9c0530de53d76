use super::*;
use crate::ablation::Ablation;
use crate::inbox::Control;
use crate::offload::{Offloads, Providers};
use crate::plan::QueueId;
use crate::queues::Rx;
use crate::threads::PmdFactory;
use crate::upcall_queues::UpcallQueues;
use datapath::DpShared;
use dpif::PmdId;
use flow::DpPort;
use std::sync::Arc;
use std::time::Duration;
use sync::{AtomicU64, Mutex, lock};

/// A queue that always has a frame; each poll records it and sends a request.
struct Endless {
    port: u32,
    inbox: Arc<Inbox>,
    asked: Arc<Mutex<Vec<u32>>>,
    fd: sys::Waker,
}

impl netdev::RxQueue for Endless {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.fd()
    }

    fn recv(
        &mut self,
        pool: &mut packet::PacketPool,
        batch: &mut packet::PacketBatch,
        _: usize,
    ) -> std::io::Result<usize> {
        batch.push(pool.alloc(60));
        lock(&self.asked).push(self.port);
        let (done, _) = std::sync::mpsc::sync_channel(1);
        let _none_left = self.inbox.request(Control::Clear(done));
        Ok(1)
    }

    fn counters(&self) -> netdev::RxCounters {
        netdev::RxCounters::default()
    }
}

#[test]
fn a_request_waits_for_one_burst_and_no_queue_for_more_than_a_round() {
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
        ablation: Ablation::default(),
    };
    let (core, offload) = (factory.core(PmdId::Core(0)), factory.offload(PmdId::Core(0)));
    let mut thread =
        PmdThread::new(core, factory.portless.clone(), inbox.clone(), offload, &factory.ablation);
    let asked = Arc::new(Mutex::new(Vec::new()));
    for port in 0..5 {
        let fd = sys::Waker::new().unwrap();
        fd.wake();
        let queue = Endless { port, inbox: inbox.clone(), asked: asked.clone(), fd };
        thread.rx.add(Rx::numbered(
            QueueId { port: DpPort(port), queue: 0 },
            Box::new(queue),
            Default::default(),
        ));
    }
    for passes in 1..=10 {
        thread.rx.look(Some(Duration::ZERO), None);
        assert!(thread.poll_ready());
        assert_eq!(lock(&asked).len(), passes, "one burst, then the request");
        assert!(thread.handle_control().is_none());
    }
    assert_eq!(*lock(&asked), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}
