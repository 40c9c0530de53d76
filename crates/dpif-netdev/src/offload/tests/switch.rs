//! Offload in a whole datapath: its threads, its main core, its ports.

use super::*;
use crate::ablation::Ablation;
use crate::{UserspaceConfig, UserspaceDatapath};
use dpif::{
    Datapath, DpifError, DpifOp, DummyPort, InlineHandler, OpBatch, PortOptions, PortSpec, Provider,
    ReplySink, ThreadPlan, Upcalls,
};
use netdev::dummy::DummyPorts;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

struct NoSlowPath;

impl InlineHandler for NoSlowPath {
    fn translate(&self, _: Upcalls) -> Vec<DpifOp> {
        Vec::new()
    }

    fn done(&self, _: &[Option<Ufid>], _: &[OpResult]) {}

    fn flows_moved(&self) {}
}

struct Replies(Sender<Vec<OpResult>>);

impl ReplySink for Replies {
    fn done(&self, _: PmdId, _: u64, results: Vec<OpResult>) {
        let _ = self.0.send(results);
    }
}

struct Rig {
    datapath: UserspaceDatapath,
    dummies: DummyPorts,
}

impl Rig {
    fn new(offload: Providers) -> Rig {
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
            offload,
            inheritance: crate::Inheritance::default(),
        };
        Rig { datapath: UserspaceDatapath::start(&config, Arc::new(NoSlowPath)).unwrap(), dummies }
    }

    /// With one device behind all ports.
    fn with_nic() -> (Rig, Nic) {
        let nic = Nic::default();
        let own = nic.clone();
        (Rig::new(Providers::new(move |_| Some(own.boxed()))), nic)
    }

    fn port_add(&self, name: &str, type_name: &str) -> DpPort {
        let options = PortOptions::Dummy(DummyPort::new(type_name));
        let spec = PortSpec { name: name.to_string(), options, mac: None, mtu: None, number: None };
        self.datapath.port_add(&spec).unwrap()
    }

    fn run_on(&self, cores: &[u16]) {
        let plan = ThreadPlan { cores: Some(cores.to_vec()), ..ThreadPlan::default() };
        self.datapath.pmd_threads().unwrap().configure(&plan).unwrap();
    }

    fn ask(&self, pmd: PmdId, op: DpifOp) -> OpResult {
        let (reply, answers) = channel();
        let reply: Option<Arc<dyn ReplySink>> = Some(Arc::new(Replies(reply)));
        self.datapath.operate(OpBatch { pmd, ops: vec![op], tag: 0, reply });
        answers.recv_timeout(LIMIT).unwrap().pop().unwrap()
    }

    fn put(&self, pmd: PmdId, put: &FlowPut) {
        let result = self.ask(pmd, DpifOp::FlowPut(Box::new(put.clone())));
        assert!(matches!(result, OpResult::Done), "{result:?}");
    }

    fn get(&self, pmd: PmdId, ufid: Ufid) -> FlowRecord {
        match self.ask(pmd, DpifOp::FlowGet(ufid)) {
            OpResult::Flow(flow) => *flow,
            other => panic!("{other:?}"),
        }
    }

    fn dump(&self, pmd: PmdId) -> Vec<FlowRecord> {
        match self.ask(pmd, DpifOp::FlowDump { cursor: 0, max_flows: 100 }) {
            OpResult::Dump(flows, None) => flows,
            other => panic!("{other:?}"),
        }
    }
}

const FULL: Offloaded = Offloaded::Full(OffloadLayer::Dpdk);

#[test]
fn operations_of_every_core_reach_the_device() {
    let (rig, nic) = Rig::with_nic();
    rig.datapath.offload().unwrap().enable();
    for (name, type_name, pmd) in [("p1", "dummy", PmdId::Main), ("p2", "dummy-pmd", PmdId::Core(0))] {
        let port = rig.port_add(name, type_name);
        let put = flow(port, 7, 1);
        rig.put(pmd, &put);
        assert_eq!(rig.get(pmd, put.ufid).offloaded, FULL);
        for n in 0..3 {
            assert!(nic.receive(&put.key, 60, 1000 + n));
        }
        assert_eq!(rig.get(pmd, put.ufid).stats, counted(3, 180, 1002));
        let dumped = rig.dump(pmd);
        assert!(dumped.len() == 1 && dumped[0].stats.packets == 3 && dumped[0].offloaded == FULL);
        let counters =
            |since_ms| match rig.ask(pmd, DpifOp::FlowCounters { cursor: 0, max_flows: 10, since_ms }) {
                OpResult::Counters(flows, None) => flows,
                other => panic!("{other:?}"),
            };
        assert_eq!(counters(1002), [(put.ufid, counted(3, 180, 1002))]);
        assert_eq!(counters(1003), []);
        let modify = FlowPut { mode: PutMode::Modify, actions: output(9), ..put.clone() };
        rig.put(pmd, &modify);
        assert_eq!(nic.actions(), [output(9).to_vec()]);
        let OpResult::Flow(last) = rig.ask(pmd, DpifOp::FlowDel(put.ufid)) else { panic!("not deleted") };
        assert_eq!((last.stats, nic.inserted()), (counted(3, 180, 1002), 0));
        rig.put(pmd, &put);
        assert!(matches!(rig.ask(pmd, DpifOp::FlowFlush), OpResult::Done));
        assert_eq!((nic.inserted(), rig.datapath.offload().unwrap().stats().unwrap().refused), (0, 0));
    }
}

#[test]
fn a_removed_port_reports_its_flows_before_any_answer_misses_them() {
    let (rig, nic) = Rig::with_nic();
    rig.datapath.offload().unwrap().enable();
    for (name, type_name, pmd) in [("p1", "dummy", PmdId::Main), ("p2", "dummy-pmd", PmdId::Core(0))] {
        let port = rig.port_add(name, type_name);
        let put = flow(port, 7, 1);
        rig.put(pmd, &put);
        rig.get(pmd, put.ufid);
        nic.receive(&put.key, 60, 1000);
        rig.datapath.port_del(port).unwrap();
        assert_eq!(nic.inserted(), 0);
        let gone = rig.ask(pmd, DpifOp::FlowGet(put.ufid));
        assert!(matches!(gone, OpResult::Failed(DpifError::NotFound("flow"))), "{gone:?}");
        let (core, last) = rig.datapath.next_purged().unwrap();
        assert_eq!((core, last.ufid, last.stats), (pmd, put.ufid, counted(1, 60, 1000)));
    }
}

#[test]
fn flows_that_move_to_another_thread_are_offloaded_again() {
    let (rig, nic) = Rig::with_nic();
    rig.datapath.offload().unwrap().enable();
    rig.run_on(&[0]);
    let port = rig.port_add("p1", "dummy-pmd");
    let put = flow(port, 7, 1);
    rig.put(PmdId::Core(0), &put);
    rig.get(PmdId::Core(0), put.ufid);
    nic.receive(&put.key, 60, 1000);
    rig.run_on(&[1]);
    // Reported before any sender finds the thread gone.
    assert_eq!(rig.datapath.next_purged().unwrap().1.stats, counted(1, 60, 1000));
    let moved = rig.dump(PmdId::Core(1));
    assert!(moved.len() == 1 && moved[0].ufid != put.ufid && moved[0].offloaded == FULL, "{moved:?}");
    assert_eq!(moved[0].stats, FlowStats::default());
    nic.receive(&put.key, 60, 2000);
    assert_eq!(rig.get(PmdId::Core(1), moved[0].ufid).stats, counted(1, 60, 2000));
    assert_eq!(nic.inserted(), 1);
    drop(rig);
    assert_eq!(nic.inserted(), 0, "the end of the datapath");
}

#[test]
fn ports_get_their_device_when_offload_is_enabled_and_flows_before_that_stay_out() {
    let (rig, nic) = Rig::with_nic();
    let port = rig.port_add("p1", "dummy");
    rig.put(PmdId::Main, &flow(port, 7, 1));
    let offload = rig.datapath.offload().unwrap();
    assert_eq!(offload.stats(), None);
    offload.enable();
    assert_eq!(rig.get(PmdId::Main, Ufid(1)).offloaded, Offloaded::No);
    rig.put(PmdId::Main, &flow(port, 8, 2));
    assert_eq!((rig.get(PmdId::Main, Ufid(2)).offloaded, nic.inserted()), (FULL, 1));
    assert_eq!(offload.stats().unwrap().inserted, 1);
}

#[test]
fn dummies_mark_the_packets_of_their_rules() {
    let rig = Rig::new(Providers::default());
    rig.datapath.offload().unwrap().enable();
    let port = rig.port_add("p1", "dummy");
    let dummy = rig.dummies.get("p1").unwrap();
    // An IPv4 header from 10.0.0.1.
    let mut frame = vec![0; 60];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[17] = 46;
    frame[22] = 64;
    frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
    let mut exact = FlowKey::default();
    let metadata = flow::extract::Metadata { in_port: port.0, ..Default::default() };
    flow::extract::extract(&frame, &metadata, 1, &mut exact);
    let put = FlowPut { key: exact, ..flow(port, 0, 1) };
    let hits = || match rig.ask(PmdId::Main, DpifOp::Stats) {
        OpResult::Stats(stats) => [stats.mark_hits, stats.cache_hits + stats.megaflow_hits, stats.upcalls],
        other => panic!("{other:?}"),
    };
    let receive = |frame: &[u8]| {
        dummy.receive(0, frame).unwrap();
        rig.datapath.run_main();
    };
    rig.put(PmdId::Main, &put);
    // The answer follows the put of the rule.
    assert_eq!(rig.get(PmdId::Main, put.ufid).offloaded, Offloaded::No, "a dummy has no counters");
    receive(&frame);
    assert_eq!((hits(), rig.get(PmdId::Main, put.ufid).stats.packets), ([1, 0, 0], 1));
    let mut other = frame.clone();
    other[29] = 2;
    receive(&other);
    assert_eq!(hits(), [1, 0, 1]);
    rig.ask(PmdId::Main, DpifOp::FlowDel(put.ufid));
    receive(&frame);
    assert_eq!(hits(), [1, 0, 2]);
}
