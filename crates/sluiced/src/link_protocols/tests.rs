//! Sessions between two bridges joined by patch ports. No main loop runs in these tests: it may be as busy as it likes.

mod cost;
mod saved;

use super::*;
use crate::instances::{Instances, Settings};
use dpif::DummyMode;
use flow::MacAddr;
use l2proto::bfd::Config;
use l2proto::protocol::{LinkValue, Table};
use ofproto::ports::BundleId;
use std::collections::BTreeMap;
use std::time::Instant;
use sync::AtomicU64;

const LIMIT: Duration = Duration::from_secs(60);

struct Bed {
    instances: Instances,
    links: LinkProtocols,
    woken: Arc<AtomicU64>,
    reports: BTreeMap<SessionName, Option<Report>>,
}

/// The session of BFD of an interface.
fn bfd(name: &str) -> SessionName {
    (name.to_string(), Protocol::Bfd)
}

fn config(settings: &[(&str, &str)]) -> Arc<[LinkSettings]> {
    let map: BTreeMap<String, String> =
        settings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let (config, warnings) = Config::parse(&map);
    assert!(warnings.is_empty() && config.enable);
    [LinkSettings::Bfd(config)].into()
}

const FAST: &[(&str, &str)] = &[("enable", "true"), ("min_tx", "50"), ("min_rx", "50"), ("mult", "10")];

impl Bed {
    /// Bridges 0 and 1.
    fn new() -> Bed {
        let settings = Settings { dummies: DummyMode::Override, ..Settings::default() };
        let mut instances = Instances::new(settings, Arc::new(|| {}));
        for n in [0, 1] {
            let id = BridgeId(n);
            let instance = instances.add_bridge(id, "netdev").expect("dummies need nothing");
            instance.backer.insert_bridge(id, &format!("br{n}"));
        }
        let woken = Arc::new(AtomicU64::new(0));
        let count = woken.clone();
        let links = LinkProtocols::new(
            move || {
                count.fetch_add(1, Ordering::Relaxed);
            },
            || {},
        );
        Bed { instances, links, woken, reports: BTreeMap::new() }
    }

    /// Gives each bridge this number of patch ports to the other one, those with a configuration with a session.
    fn ports(&mut self, ports: u32, configs: [Option<&Arc<[LinkSettings]>>; 2]) {
        for (n, links) in (0..).zip(configs) {
            let (id, peer) = (BridgeId(n), BridgeId(1 - n));
            let entry = |p: u32| PortEntry {
                of_port: OfPort(p),
                dp_port: None,
                name: format!("p{n}-{p}"),
                type_name: "patch".to_string(),
                mac: MacAddr([2, 0, 0, n as u8, (p >> 8) as u8, p as u8]),
                bundle: BundleId(p),
                tunnel: None,
                links: links.cloned().unwrap_or_default(),
                patch_peer_name: None,
                patch_peer: Some((peer, OfPort(p))),
                queue_dscp: Default::default(),
            };
            let set = PortSet { ports: (1..=ports).map(entry).map(Arc::new).collect(), ..PortSet::default() };
            let instance = self.instances.of_bridge(id).expect("made above");
            let mut table = set.table(&PortTable::default());
            self.links.attach(id, instance, &set, &mut table);
            instance.backer.set_ports(id, table);
        }
    }

    /// Waits until this many sessions are reported as forwarding, or not.
    fn wait(&mut self, count: usize, forwarding: bool) {
        let begun = Instant::now();
        loop {
            self.reports.extend(self.links.take_reports(u64::MAX / 2));
            self.links.next_reports_ms = 0;
            let all = self.reports.values().flatten();
            if all.filter(|report| report.state.is_live == forwarding).count() == count {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "{:?}", self.reports);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn status(&self, name: &str, key: &str) -> &str {
        status(self.reports[&bfd(name)].as_ref().expect("it has a session"), key)
    }

    fn show(&self, name: Option<&str>) -> Result<String, String> {
        self.links.command(Protocol::Bfd, 1, &Vec::from_iter(name.map(str::to_string)))
    }

    fn set_forwarding(&self, name: Option<&str>, choice: &str) -> Result<String, String> {
        let args = name.into_iter().chain([choice]).map(str::to_string);
        self.links.command(Protocol::Bfd, 0, &args.collect::<Vec<_>>())
    }
}

/// A pair of `bfd_status`.
fn status<'r>(report: &'r Report, key: &str) -> &'r str {
    let LinkValue::Map(pairs) = &report.status[&(Table::Interface, "bfd_status")] else {
        panic!("{report:?}")
    };
    &pairs[key]
}

#[test]
fn sessions_live_without_the_main_loop() {
    let mut bed = Bed::new();
    let fast = config(FAST);
    bed.ports(1, [Some(&fast), Some(&fast)]);
    bed.wait(2, true);
    assert!(bed.woken.load(Ordering::Relaxed) > 0);
    for name in ["p0-1", "p1-1"] {
        assert_eq!((bed.status(name, "state"), bed.status(name, "flap_count")), ("up", "1"));
    }
    // Four detection times later nothing has changed: the thread alone sends and receives.
    let epoch = bed.instances.of_bridge(BridgeId(0)).unwrap().backer.epoch();
    std::thread::sleep(Duration::from_millis(4 * 50 * 10));
    bed.wait(2, true);
    assert_eq!(bed.status("p0-1", "flap_count"), "1");
    let backer = bed.instances.of_bridge(BridgeId(0)).unwrap().backer.clone();
    assert_eq!(backer.epoch(), epoch);
    let may_enable = |n: u32| {
        let view = backer.view();
        view.bridge(BridgeId(n)).unwrap().ports.port(OfPort(1)).unwrap().may_enable()
    };
    assert!(may_enable(0) && may_enable(1));
    // The other end loses its session: its packets are no longer taken, and none are sent.
    bed.ports(1, [Some(&fast), None]);
    bed.wait(1, false);
    assert_eq!(bed.status("p0-1", "diagnostic"), "Control Detection Time Expired");
    assert_eq!((bed.status("p0-1", "state"), bed.status("p0-1", "flap_count")), ("down", "2"));
    assert_eq!(bed.reports[&bfd("p1-1")], None);
    assert!(!may_enable(0) && may_enable(1) && backer.epoch() > epoch);
}

#[test]
fn commands_have_the_texts_of_ovs() {
    let mut bed = Bed::new();
    // Without a session the thread does not exist.
    assert_eq!(bed.show(None), Ok(String::new()));
    assert_eq!(bed.show(Some("p0-1")), Err("no such bfd object".to_string()));
    assert_eq!(bed.set_forwarding(None, "true"), Ok("OK".to_string()));
    assert!(bed.links.thread.is_none());
    let slow = config(&[("enable", "true"), ("min_tx", "10000")]);
    bed.ports(1, [Some(&slow), None]);
    bed.wait(1, false);
    let shown = bed.show(Some("p0-1")).unwrap();
    assert!(shown.starts_with("  Forwarding: false\n") && shown.contains("Approx 10000ms"), "{shown}");
    assert!(bed.show(None).unwrap().starts_with("---- p0-1 ----\n"));
    assert_eq!(bed.show(Some("p0-2")), Err("no such bfd object".to_string()));
    for (name, choice, answer) in [
        (Some("p0-1"), "TRUE", Ok("OK")),
        (Some("p0-2"), "true", Err("no such BFD object")),
        (None, "yes", Err("unknown fault string")),
    ] {
        let answer = answer.map(str::to_string).map_err(str::to_string);
        assert_eq!(bed.set_forwarding(name, choice), answer);
    }
    bed.wait(1, true);
    assert_eq!(bed.status("p0-1", "state"), "down");
    bed.ports(1, [None, None]);
    bed.links.pass();
    assert_eq!(bed.show(None), Ok(String::new()));
}
