//! Threads are started and ended and exchange queues while packets flow, on ports without a device, whose queues
//! report their free space, so that no frame need be lost.

use super::*;
use dpif::actions::Output;
use dpif::{
    CacheSettings, DpAction, DpifError, DpifOp, DummyPort, Execute, OpBatch, OpResult, PmdId, PmdThreads,
    Provider, ReplySink, RxqAssign, SleepMax, ThreadPlan,
};
use flow::FlowKey;
use flow::extract::{Metadata, extract};
use netdev::dummy::{Dummy, DummyPorts};
use packet::Packet;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Per port.
fn options() -> PortOptions {
    PortOptions::Dummy(DummyPort { n_rxq: 2, ..DummyPort::new(DummyPort::PMD_TYPE) })
}

/// A switch of dummies: bridge `br0` with ports 1 to n, each with two receive queues.
struct Rig {
    datapath: Arc<UserspaceDatapath>,
    backer: Arc<Backer>,
    bridge: ofproto::ports::BridgeId,
    ports: Vec<Dummy>,
    /// Frames sent by each port, by port and frame number.
    sent: Arc<Mutex<Vec<(u32, u8, u32)>>>,
    _slow: SlowPath,
}

fn plan(cores: &[u16], assign: RxqAssign) -> ThreadPlan {
    ThreadPlan { cores: Some(cores.to_vec()), assign, ..ThreadPlan::default() }
}

impl Rig {
    fn new(ports: u32) -> Rig {
        let dummies = DummyPorts::default();
        let config = UserspaceConfig {
            name: "dummy@test".to_string(),
            dummy: true,
            dummy_ports: dummies.clone(),
            dummy_numa: Vec::new(),
            ablation: Ablation::default(),
            watch: None,
            threads: ThreadPlan::default(),
            vlan_limit: 1,
            hash_seed: 7,
            offload: Providers::default(),
            inheritance: dpif_netdev::Inheritance::default(),
        };
        let backer = Arc::new(Backer::new(1));
        let wake: Wake = Arc::new(|| {});
        let inline =
            Arc::new(InlineSlowPath { backer: backer.clone(), datapath: String::new(), wake: wake.clone() });
        let datapath = UserspaceDatapath::start(&config, inline).unwrap();
        let datapath = Arc::new(datapath);
        let slow = SlowPath::start(&backer, datapath.clone(), Some(2), false, wake).unwrap();
        let bridge = backer.add_bridge("br0");
        let mut rig = Rig { datapath, backer, bridge, ports: Vec::new(), sent: Arc::default(), _slow: slow };
        for n in 1..=ports {
            rig.add(n);
            let dummy = dummies.get(&format!("p{n}")).unwrap();
            let sent = rig.sent.clone();
            dummy.set_tap(Some(Box::new(move |frame: &[u8]| {
                let number = u32::from_be_bytes([frame[60], frame[61], frame[62], frame[63]]);
                lock(&sent).push((n, frame[11], number));
            })));
            rig.ports.push(dummy);
        }
        let names: Vec<String> = (1..=ports).map(|n| format!("p{n}")).collect();
        let table: Vec<_> = (1..).zip(&names).map(|(n, name)| (n, DpPort(n), name.as_str())).collect();
        rig.backer.set_ports(bridge, port_table(&table));
        rig.rule(vec![Action::Output(ofp_actions::Output { port: OfPort(2), max_len_bytes: 0 })]);
        rig
    }

    fn pmds(&self) -> &dyn PmdThreads {
        self.datapath.pmd_threads().unwrap()
    }

    fn add(&self, n: u32) -> DpPort {
        let spec = PortSpec { name: format!("p{n}"), options: options(), mac: None, mtu: None, number: None };
        self.datapath.port_add(&spec).unwrap()
    }

    fn rule(&self, actions: Vec<Action>) {
        let rule = Rule { actions: actions.into(), ..normal_rule() };
        self.backer.change_bridge(self.bridge, |b| b.tables.insert(Arc::new(rule)));
    }

    /// Puts a frame of a flow into the flow's queue of port 1, if there is space.
    fn send(&self, flow: u8, number: u32) {
        let port = &self.ports[0];
        let queue = usize::from(flow % 2);
        let start = Instant::now();
        while port.room(queue) == 0 {
            assert!(start.elapsed() < LIMIT, "queue {queue} is not emptied");
            std::thread::yield_now();
        }
        port.receive(queue, &frame(flow, number)).unwrap();
    }

    fn wait(&self, what: &str, mut done: impl FnMut() -> bool) {
        testkit::wait_for(LIMIT, what, &mut done).unwrap();
    }

    fn wait_sent(&self, frames: usize) {
        let waited = testkit::wait_for(LIMIT, "all frames", || lock(&self.sent).len() >= frames);
        assert!(waited.is_ok(), "{} of {frames}: {:?}", lock(&self.sent).len(), self.drops());
    }

    fn drops(&self) -> Vec<u64> {
        let stats = self.datapath.port_stats(DpPort(1)).unwrap();
        stats.drops.to_vec()
    }

    /// The core that polls each queue of a port.
    fn cores(&self, port: &str) -> Vec<u16> {
        let mut all = Vec::new();
        for t in self.pmds().threads(12) {
            all.extend(t.queues.iter().filter(|q| q.port == port).map(|q| (q.queue, t.core)));
        }
        all.sort_unstable();
        all.into_iter().map(|(_, core)| core).collect()
    }

    /// Packets counted by the rules of the bridge.
    fn rule_packets(&self) -> u64 {
        let view = self.backer.view();
        view.bridge(self.bridge).unwrap().tables.iter().map(|r| r.stats.counts().0).sum()
    }
}

/// A frame of 64 bytes: the flow in its source address, the number at its end.
fn frame(flow: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 0xfe, 0x02, 0, 0, 0, 0, flow, 0x88, 0xb5];
    frame.resize(60, 0);
    frame.extend_from_slice(&number.to_be_bytes());
    frame
}

/// No loss, no duplicates, each flow in order.
fn check_order(sent: &[(u32, u8, u32)], flows: u8, frames: u32) {
    for flow in 0..flows {
        let numbers: Vec<u32> = sent.iter().filter(|s| s.1 == flow).map(|s| s.2).collect();
        let wanted: Vec<u32> = (0..frames).filter(|n| n % u32::from(flows) == u32::from(flow)).collect();
        assert_eq!(numbers, wanted, "flow {flow}");
    }
}

#[test]
fn threads_are_planned_anew_without_a_lost_or_reordered_packet() {
    let rig = Rig::new(3);
    let (flows, frames) = (12u8, 30_000u32);
    let plans = [
        plan(&[0, 1], RxqAssign::RoundRobin),
        plan(&[1], RxqAssign::Cycles),
        plan(&[1, 2, 3], RxqAssign::Group),
        plan(&[0, 3], RxqAssign::Cycles),
        ThreadPlan::default(),
    ];
    // Only a limited number of packets of a flow may wait for a slow handler: install the flows first.
    (0..flows).for_each(|n| rig.send(n, n.into()));
    rig.wait_sent(flows.into());
    std::thread::scope(|scope| {
        let rest = u32::from(flows)..frames;
        let sender = scope.spawn(|| rest.for_each(|n| rig.send((n % u32::from(flows)) as u8, n)));
        let mut plans = plans.iter().cycle();
        let mut replans = 0;
        while !sender.is_finished() || replans < 20 {
            rig.pmds().configure(plans.next().unwrap()).unwrap();
            replans += 1;
            // Others come and go meanwhile.
            rig.datapath.port_del(DpPort(3)).unwrap();
            assert_eq!(rig.add(3), DpPort(3));
            rig.pmds().rebalance();
        }
    });
    rig.wait_sent(frames as usize);
    check_order(&lock(&rig.sent), flows, frames);
    assert!(rig.drops().iter().all(|n| *n == 0));
    // Counters of ended threads still count.
    let stats = rig.datapath.port_stats(DpPort(1)).unwrap();
    assert_eq!((stats.rx_packets, stats.rx_bytes), (frames.into(), 64 * u64::from(frames)));
    assert_eq!(rig.datapath.port_stats(DpPort(2)).unwrap().tx_packets, u64::from(frames));
    // One request for all ports equals one request each.
    let all = rig.datapath.all_port_stats();
    assert_eq!(all.iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [1, 2, 3]);
    all.iter().for_each(|(port, stats)| assert_eq!(rig.datapath.port_stats(*port).as_ref(), Ok(stats)));
    assert_eq!(rig.datapath.port_totals().rx_packets, u64::from(frames));
    let counted = testkit::wait_for(LIMIT, "the rule's count", || rig.rule_packets() == u64::from(frames));
    assert!(counted.is_ok(), "{} of {frames} packets are counted by their rule", rig.rule_packets());
}

#[test]
fn a_flow_on_two_threads_is_counted_as_one() {
    let rig = Rig::new(2);
    rig.pmds().configure(&plan(&[0, 1], RxqAssign::RoundRobin)).unwrap();
    assert_eq!(rig.cores("p1"), [0, 1]);
    // Rules without matches make one megaflow for all flows; each thread has its own.
    (0..2).for_each(|n| rig.send((n % 2) as u8, n));
    rig.wait_sent(2);
    (2..1000).for_each(|n| rig.send((n % 2) as u8, n));
    rig.wait_sent(1000);
    rig.wait("both threads' packets to be counted", || rig.rule_packets() == 1000);
    let sums: Vec<u64> = (0..2).map(|n| packets_of(&rig, PmdId::Core(n))).collect();
    assert!(sums.iter().all(|n| (490..=500).contains(n)), "{sums:?}");
}

fn packets_of(rig: &Rig, pmd: PmdId) -> u64 {
    let dump = DpifOp::FlowDump { cursor: 0, max_flows: 100 };
    match ask(rig, pmd, vec![dump]).pop() {
        Some(OpResult::Dump(flows, None)) => flows.iter().map(|f| f.stats.packets).sum(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn flows_go_with_their_queues() {
    let rig = Rig::new(2);
    rig.pmds().configure(&plan(&[0], RxqAssign::RoundRobin)).unwrap();
    (0..100).for_each(|n| rig.send((n % 2) as u8, n));
    rig.wait_sent(100);
    let upcalls = |core: u16| match ask(&rig, PmdId::Core(core), vec![DpifOp::Stats]).pop() {
        Some(OpResult::Stats(stats)) => stats.upcalls,
        other => panic!("{other:?}"),
    };
    assert!(upcalls(0) > 0);
    rig.pmds().configure(&plan(&[1], RxqAssign::RoundRobin)).unwrap();
    (100..200).for_each(|n| rig.send((n % 2) as u8, n));
    rig.wait_sent(200);
    assert_eq!(upcalls(1), 0, "the new thread asked for flows that the old one had");
    rig.wait("the flows of both to be counted", || rig.rule_packets() == 200);
    // Flows taken over follow the tables like others.
    rig.rule(vec![Action::Output(ofp_actions::Output { port: OfPort(1), max_len_bytes: 0 })]);
    rig.rule(Vec::new());
    rig.wait("the flow to follow its rule", || {
        let dump = DpifOp::FlowDump { cursor: 0, max_flows: 100 };
        let Some(OpResult::Dump(flows, None)) = ask(&rig, PmdId::Core(1), vec![dump]).pop() else {
            return false;
        };
        flows.iter().all(|f| f.actions.iter().all(|a| !matches!(a, DpAction::Output(_))))
    });
}

struct Answers(Mutex<Sender<Vec<OpResult>>>);

impl ReplySink for Answers {
    fn done(&self, _: PmdId, _: u64, results: Vec<OpResult>) {
        let _ = lock(&self.0).send(results);
    }
}

fn ask(rig: &Rig, pmd: PmdId, ops: Vec<DpifOp>) -> Vec<OpResult> {
    let (sender, answers) = channel();
    let reply: Arc<dyn ReplySink> = Arc::new(Answers(Mutex::new(sender)));
    rig.datapath.operate(OpBatch { pmd, ops, tag: 0, reply: Some(reply) });
    answers.recv_timeout(LIMIT).expect("every batch is answered")
}

fn execute(number: u32) -> DpifOp {
    let bytes = frame(9, number);
    let mut key = FlowKey::default();
    extract(&bytes, &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut key);
    let actions: Arc<[DpAction]> = vec![DpAction::Output(Output(DpPort(2)))].into();
    let packet = Packet::from_slice(&bytes);
    DpifOp::Execute(Box::new(Execute {
        packet,
        key,
        actions,
        ticket: Some(dpif::Ticket(1 << 16)),
        upcall: 0,
        went_on: false,
    }))
}

#[test]
fn operations_for_a_thread_that_is_gone_fail_and_its_packets_go_out() {
    let rig = Rig::new(2);
    let dump = DpifOp::FlowDump { cursor: 0, max_flows: 1 };
    let results = ask(&rig, PmdId::Core(40), vec![dump, DpifOp::FlowDel(flow::Ufid(1)), execute(7)]);
    assert!(matches!(&results[0], OpResult::Failed(e) if *e == DpifError::NO_THREAD), "{results:?}");
    assert!(matches!(&results[1], OpResult::Failed(e) if *e == DpifError::NO_THREAD), "{results:?}");
    assert!(matches!(results[2], OpResult::Done), "{results:?}");
    assert_eq!(*lock(&rig.sent), [(2, 9, 7)]);
}

#[test]
fn each_batch_is_answered_once_however_threads_come_and_go() {
    let rig = Rig::new(2);
    let packets = 3000;
    std::thread::scope(|scope| {
        let rig = &rig;
        let asking: Vec<_> = (0..2)
            .map(|half| {
                scope.spawn(move || {
                    for n in 0..packets / 2 {
                        let pmd = PmdId::Core((n % 3) as u16);
                        let dump = DpifOp::FlowDump { cursor: 0, max_flows: 1 };
                        let results = ask(rig, pmd, vec![execute(half * packets + n), dump]);
                        assert_eq!(results.len(), 2);
                    }
                })
            })
            .collect();
        let plans = [plan(&[0, 1, 2], RxqAssign::Cycles), plan(&[1], RxqAssign::Cycles)];
        let mut plans = plans.iter().cycle();
        while !asking.iter().all(|a| a.is_finished()) {
            rig.pmds().configure(plans.next().unwrap()).unwrap();
        }
    });
    rig.wait_sent(packets as usize);
    let mut sent: Vec<u32> = lock(&rig.sent).iter().map(|s| s.2).collect();
    sent.sort_unstable();
    sent.dedup();
    assert_eq!(sent.len(), packets as usize, "each packet went out once");
}

#[test]
fn pinned_queues_isolate_a_thread_until_they_go() {
    let rig = Rig::new(3);
    rig.pmds().configure(&plan(&[0, 1], RxqAssign::Cycles)).unwrap();
    let pin = |port: u32, pins: &[(u16, u16)]| {
        rig.pmds().port_rx_update(DpPort(port), &options(), &pins.iter().copied().collect()).unwrap();
    };
    pin(3, &[(0, 1)]);
    let isolated = || rig.pmds().threads(1).iter().map(|t| t.isolated).collect::<Vec<_>>();
    assert_eq!(isolated(), [false, true]);
    assert_eq!((rig.cores("p1"), rig.cores("p2"), rig.cores("p3")), (vec![0, 0], vec![0, 0], vec![1, 0]));
    rig.datapath.port_del(DpPort(3)).unwrap();
    assert_eq!(isolated(), [false, false]);
    rig.pmds().rebalance();
    assert_eq!(rig.cores("p1").iter().chain(&rig.cores("p2")).filter(|c| **c == 1).count(), 2);
    // A core without a thread cannot be pinned to.
    pin(1, &[(0, 5)]);
    assert!(rig.cores("p1").iter().all(|core| *core < 2));
    assert_eq!(isolated(), [false, false]);
}

#[test]
fn load_is_measured_by_queue_and_goes_with_it() {
    let rig = Rig::new(2);
    rig.pmds().configure(&plan(&[0, 1], RxqAssign::RoundRobin)).unwrap();
    let until = Instant::now() + Duration::from_millis(300);
    let mut n = 0;
    while Instant::now() < until {
        rig.send(0, n);
        n += 1;
    }
    let usage = |threads: &[dpif::ThreadInfo]| -> Vec<f64> {
        let queues = threads.iter().flat_map(|t| &t.queues).filter(|q| q.port == "p1");
        queues.map(|q| q.usage.unwrap_or(0.0)).collect()
    };
    let threads = rig.pmds().threads(12);
    let before = usage(&threads);
    assert!(before[0] > 0.01 && before[0] > 10.0 * before[1], "{before:?}");
    // A queue and its thread started at about the same time.
    let busy = threads[0].busy.unwrap();
    assert!((0.8 * before[0]..=1.0).contains(&busy), "{busy} of {before:?}");
    rig.pmds().configure(&plan(&[1], RxqAssign::RoundRobin)).unwrap();
    let after = usage(&rig.pmds().threads(12));
    assert!(after[0] > 0.005 && after[0] > 5.0 * after[1], "{before:?}, then {after:?}");
}

#[test]
fn timed_sleeps_lose_nothing_and_operations_end_them() {
    let rig = Rig::new(2);
    let sleep = SleepMax { default_us: 10_000, ..SleepMax::default() };
    rig.pmds().configure(&ThreadPlan { sleep, ..ThreadPlan::default() }).unwrap();
    // Only a limited number of packets of a flow may wait for a slow handler: install the flows first.
    (0..4).for_each(|n| rig.send((n % 4) as u8, n));
    rig.wait_sent(4);
    (4..2000).for_each(|n| rig.send((n % 4) as u8, n));
    rig.wait_sent(2000);
    // Twenty sleeps of ten milliseconds would be two hundred; an operation ends each.
    (0..20).for_each(|_| drop(ask(&rig, PmdId::Core(0), vec![DpifOp::Stats])));
}

#[test]
fn packets_wait_for_others_to_be_sent_with() {
    let rig = Rig::new(2);
    rig.send(0, 0);
    rig.wait_sent(1);
    rig.pmds().configure(&ThreadPlan { flush_us: 200_000, ..ThreadPlan::default() }).unwrap();
    let calls = || match &ask(&rig, PmdId::Core(0), vec![DpifOp::Stats])[..] {
        [OpResult::Stats(stats)] => stats.sent_batches,
        other => panic!("{other:?}"),
    };
    // The interval may end between both while the machine lets no thread run; and the flow may not be there yet.
    let (mut sent, room) = (1, rig.ports[0].room(0));
    rig.wait("two bursts sent by one call", || {
        let before = calls();
        rig.send(0, sent);
        rig.wait("the first burst", || rig.ports[0].room(0) == room);
        rig.send(0, sent + 1);
        sent += 2;
        rig.wait_sent(sent as usize);
        calls() == before + 1
    });
}

#[test]
fn the_flow_cache_is_off_when_the_settings_say_so() {
    let rig = Rig::new(2);
    let cached = |before: usize| {
        (0..200).for_each(|n| rig.send((n % 4) as u8, n));
        rig.wait_sent(before + 200);
        match &ask(&rig, PmdId::Core(0), vec![DpifOp::Stats])[..] {
            [OpResult::Stats(stats)] => stats.cache_hits,
            other => panic!("{other:?}"),
        }
    };
    let tuned = |emc_insert_inv_prob| {
        let cache = CacheSettings { emc_insert_inv_prob, smc_enable: None };
        rig.pmds().configure(&ThreadPlan { cache, ..ThreadPlan::default() }).unwrap();
    };
    tuned(Some(0));
    assert_eq!(cached(0), 0);
    tuned(None);
    assert!(cached(200) > 0);
}

#[test]
fn threads_start_with_the_first_port_that_needs_one() {
    let rig = Rig::new(0);
    assert_eq!(rig.datapath.pmds(), [PmdId::Main]);
    rig.pmds().configure(&plan(&[2, 5, 200], RxqAssign::Cycles)).unwrap();
    assert_eq!(rig.datapath.pmds(), [PmdId::Main]);
    rig.add(1);
    assert_eq!(rig.datapath.pmds(), [PmdId::Main, PmdId::Core(2), PmdId::Core(5)]);
    rig.pmds().configure(&plan(&[200], RxqAssign::Cycles)).unwrap();
    assert_eq!(rig.datapath.pmds(), [PmdId::Main, PmdId::Core(0)], "no core of the mask is there");
}
