//! Zones against a scripted tracker.

use super::*;
use crate::tracker::Scripted;
use dpif::TimeoutAttr;
use vswitch::config::CtZoneConfig;

const NAME: &str = "netdev@ovs-netdev";

fn config(zones: &[(u16, Option<u32>, Option<u32>)]) -> Arc<CtConfig> {
    let zone = |(number, limit, udp): &(u16, Option<u32>, Option<u32>)| {
        let timeouts = udp.iter().map(|seconds| (TimeoutAttr::UdpFirst, *seconds)).collect();
        (*number, CtZoneConfig { limit: *limit, timeouts })
    };
    Arc::new(CtConfig { default_limit: None, zones: zones.iter().map(zone).collect() })
}

fn id(n: u32) -> TimeoutId {
    TimeoutId(n.try_into().unwrap())
}

/// Zones of a tracker, with the last assignment.
struct World {
    tracker: Option<Scripted>,
    zones: Zones,
    assigned: BTreeMap<u16, TimeoutId>,
}

impl World {
    fn new(tracker: Option<Scripted>) -> World {
        let zones = Zones::new(NAME, tracker.as_ref().map(|t| t as _));
        World { tracker, zones, assigned: BTreeMap::new() }
    }

    fn tracker(&self) -> Option<&dyn Connections> {
        self.tracker.as_ref().map(|t| t as _)
    }

    fn run(&mut self) -> usize {
        let mut turns = 1;
        let tracker = self.tracker.as_ref().map(|t| t as _);
        while self.zones.run(NAME, tracker, &mut |zones| self.assigned = zones) {
            turns += 1;
        }
        assert!(self.zones.is_settled());
        turns
    }

    /// Applies a configuration; returns the calls of the tracker.
    fn set(&mut self, config: Arc<CtConfig>) -> Vec<String> {
        let tracker = self.tracker.as_ref().map(|t| t as _);
        self.zones.set(NAME, tracker, config);
        self.run();
        self.calls()
    }

    fn calls(&self) -> Vec<String> {
        self.tracker.as_ref().map(Scripted::take_calls).unwrap_or_default()
    }

    fn remove(&mut self, finished: u64, now_ms: u64) -> Vec<String> {
        let tracker = self.tracker.as_ref().map(|t| t as _);
        self.zones.remove_unused(tracker, finished, now_ms, &mut || 5);
        self.calls()
    }
}

#[test]
fn limits_and_policies_are_set_assigned_and_removed() {
    let mut world = World::new(Some(Scripted::default()));
    assert!(!world.zones.own_limits());
    assert_eq!(
        world.set(config(&[(5, Some(3), Some(7)), (6, None, Some(7))])),
        ["set policy 1 udp_first=7", "set limits 5=3"]
    );
    assert_eq!(world.assigned, [(5, id(1)), (6, id(1))].into());
    assert!(world.zones.own_limits());
    assert_eq!(world.zones.take_report(), None);
    assert_eq!(world.set(config(&[(6, None, Some(8))])), ["set policy 2 udp_first=8", "remove limits 5"]);
    assert_eq!(world.assigned, [(6, id(2))].into());
    assert!(!world.zones.own_limits());
    // The former policy is removed after the round that is ordered now, and later if it is in use.
    world.tracker.as_ref().unwrap().fail("delete policy", DpifError::Busy("policy"));
    for (finished, now_ms, calls) in [
        (3, 1000, &[][..]),
        (5, 2000, &[]),
        (6, 3000, &["delete policy 1"]),
        (7, 4000, &[]),
        (9, 23_000, &["delete policy 1"]),
        (9, 43_000, &["delete policy 1"]),
    ] {
        assert_eq!(world.remove(finished, now_ms), calls, "{finished}");
    }
    world.tracker.as_ref().unwrap().fail_nothing();
    assert_eq!(world.remove(9, 63_000), ["delete policy 1"]);
    assert_eq!(world.remove(9, 99_000), [""; 0]);
    assert!(world.zones.planner.leaving().is_empty());
}

#[test]
fn policies_of_a_former_process_are_removed() {
    let tracker = Scripted::default();
    tracker.with_policies(&[4, 9]);
    let mut world = World::new(Some(tracker));
    assert_eq!(world.calls(), ["list policies"]);
    assert_eq!(world.remove(0, 1000), [""; 0]);
    assert_eq!(world.remove(6, 2000), ["delete policy 4", "delete policy 9"]);
}

#[test]
fn refusals_are_reported_and_tried_again() {
    let mut world = World::new(Some(Scripted::default()));
    world.calls();
    let refused = || DpifError::Device("the kernel refused".to_string());
    world.tracker.as_ref().unwrap().fail("set limits", refused());
    assert_eq!(world.set(config(&[(5, Some(3), None), (6, Some(3), None)])), ["set limits 5=3 6=3"]);
    let why = "netdev@ovs-netdev: cannot set the limit of zone 5 and 1 more: the kernel refused";
    assert_eq!(world.zones.take_report(), Some(Some(why.to_string())));
    assert_eq!(world.zones.take_report(), None);
    world.tracker.as_ref().unwrap().fail_nothing();
    world.zones.retry(NAME, world.tracker.as_ref().map(|t| t as _));
    world.run();
    assert_eq!(world.calls(), ["set limits 5=3 6=3"]);
    assert_eq!(world.zones.take_report(), Some(None));
    // Nothing failed: nothing to try again.
    world.zones.retry(NAME, world.tracker.as_ref().map(|t| t as _));
    world.run();
    assert_eq!(world.calls(), [""; 0]);
    // Zones of a refused policy have none.
    world.tracker.as_ref().unwrap().fail("set policy", refused());
    world.set(config(&[
        (5, Some(3), Some(1)),
        (6, Some(3), Some(2)),
        (7, None, Some(3)),
        (8, None, Some(4)),
    ]));
    assert!(world.assigned.is_empty());
    let report = world.zones.take_report().flatten().unwrap();
    let first = "netdev@ovs-netdev: cannot set timeout policy 1 (udp_first=1): its zones have default timeouts: the kernel refused; ";
    assert!(report.starts_with(first) && report.ends_with("; and 1 more"), "{report}");
}

#[test]
fn a_datapath_without_the_feature_says_so() {
    let mut world = World::new(None);
    assert_eq!(world.set(Arc::default()), [""; 0]);
    assert_eq!(world.zones.take_report(), None);
    world.set(config(&[(5, Some(3), Some(7))]));
    let why = "netdev@ovs-netdev tracks no connections: limits and timeouts of its zones (datapaths) have no effect";
    assert_eq!(world.zones.take_report(), Some(Some(why.to_string())));
    assert!(world.assigned.is_empty() && world.tracker().is_none());
    let mut world = World::new(Some(Scripted::plain()));
    assert_eq!(world.set(config(&[(5, Some(3), Some(7))])), ["set limits 5=3"]);
    let why = "netdev@ovs-netdev has fixed timeouts of connections: timeout policies of its zones (datapaths) have no effect";
    assert_eq!(world.zones.take_report(), Some(Some(why.to_string())));
    world.set(config(&[(5, Some(3), None)]));
    assert_eq!(world.zones.take_report(), Some(None));
}

#[test]
fn ignored_timeouts_are_named() {
    let mut world = World::new(Some(Scripted::default()));
    let timeouts = [(TimeoutAttr::IcmpReply, 3), (TimeoutAttr::IcmpFirst, 4)].into_iter().collect();
    let zones = [(5, CtZoneConfig { limit: None, timeouts })].into();
    let calls = world.set(Arc::new(CtConfig { default_limit: None, zones }));
    assert_eq!(calls, ["set policy 1 icmp_first=4,icmp_reply=3"]);
    let why = "netdev@ovs-netdev has no timeout icmp_reply: in timeout policies it has no effect";
    assert_eq!(world.zones.take_report(), Some(Some(why.to_string())));
    assert_eq!(world.assigned, [(5, id(1))].into());
    world.set(config(&[(5, None, Some(3))]));
    assert_eq!(world.zones.take_report(), Some(None));
}

#[test]
fn many_zones_take_several_turns() {
    let mut world = World::new(Some(Scripted::default()));
    let zones: Vec<_> = (0..1000).map(|n| (n, Some(1), Some(u32::from(n) + 1))).collect();
    world.zones.set(NAME, world.tracker.as_ref().map(|t| t as _), config(&zones));
    assert_eq!(world.run(), (1000 + 1 + 4_usize).div_ceil(STEPS_PER_TURN));
    assert_eq!(world.assigned.len(), 1000);
}

#[test]
fn the_end_of_a_datapath_takes_its_limits_and_policies_along() {
    let tracker = Scripted::default();
    let mut zones = Zones::new(NAME, Some(&tracker));
    zones.set(NAME, Some(&tracker), config(&[(5, Some(3), Some(7))]));
    while zones.run(NAME, Some(&tracker), &mut |_| ()) {}
    tracker.take_calls();
    let mut before = Vec::new();
    zones.end(NAME, Some(&tracker), || before = tracker.take_calls());
    assert_eq!(before, ["remove limits 5"]);
    assert_eq!(tracker.take_calls(), ["delete policy 1"]);
}
