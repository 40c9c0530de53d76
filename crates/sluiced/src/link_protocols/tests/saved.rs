//! Sessions that move to another process.

use super::super::saved::SavedSession;
use super::*;
use serde_json::Value;

impl Bed {
    /// Another process takes the sessions over; returns the reasons for refused states.
    fn move_sessions(&mut self, change: impl Fn(&mut Vec<SavedSession>)) -> Vec<String> {
        self.links.hold().expect("the thread answers");
        let mut saved = self.links.saved().expect("the thread answers");
        change(&mut saved);
        self.links = LinkProtocols::new(|| {}, || {});
        self.reports.clear();
        self.links.restore(saved, 0)
    }

    fn end_restore(&mut self) {
        let instances = &self.instances;
        self.links.end_restore(|bridge| instances.of_bridge(bridge));
    }

    fn may_enable(&self, n: u32) -> bool {
        let view = self.instances.of_bridge(BridgeId(n)).expect("it is there").backer.view();
        view.bridge(BridgeId(n))
            .expect("it is there")
            .ports
            .port(OfPort(1))
            .expect("it is there")
            .may_enable()
    }

    /// The lines of a session about discriminators.
    fn discriminators(&self, name: &str) -> Vec<String> {
        let shown = self.show(Some(name)).expect("it has a session");
        shown.lines().filter(|line| line.contains("Discriminator")).map(str::to_string).collect()
    }
}

#[test]
fn sessions_move_without_a_change() {
    let mut bed = Bed::new();
    let fast = config(FAST);
    bed.ports(1, [Some(&fast), Some(&fast)]);
    bed.wait(2, true);
    let before = bed.discriminators("p0-1");
    assert_eq!(before.len(), 2);
    for _ in 0..5 {
        assert_eq!(bed.move_sessions(|_| {}), [""; 0]);
        bed.ports(1, [Some(&fast), Some(&fast)]);
        // Before the thread tells anything, and after.
        assert!(bed.may_enable(0) && bed.may_enable(1));
        bed.wait(2, true);
        bed.links.pass();
        bed.end_restore();
        assert_eq!(bed.discriminators("p0-1"), before);
        for name in ["p0-1", "p1-1"] {
            assert_eq!((bed.status(name, "state"), bed.status(name, "flap_count")), ("up", "1"));
        }
    }
    // The next one goes on by itself.
    bed.links.hold().expect("the thread answers");
    bed.links.go_on();
    bed.links.pass();
    bed.ports(1, [Some(&fast), None]);
    bed.wait(1, false);
    assert_eq!(bed.status("p0-1", "flap_count"), "2");
}

#[test]
fn wrong_states_are_refused_and_the_others_move() {
    let mut bed = Bed::new();
    let fast = config(FAST);
    bed.ports(3, [Some(&fast), Some(&fast)]);
    bed.wait(6, true);
    let refused = bed.move_sessions(|saved| {
        assert_eq!(saved.len(), 6);
        saved[0].protocol = "carrier pigeons".to_string();
        saved[1].text = saved[1].text.replace("\\\"up\\\"", "\\\"above\\\"");
        saved[2].text.truncate(40);
        // No interface has this name later.
        saved[3].interface = "gone".to_string();
        // Fields of another version.
        let mut value: Value = serde_json::from_str(&saved[4].text).expect("JSON");
        value["later"] = 7.into();
        value["effect"].as_object_mut().expect("an object").remove("learn");
        value["port"].as_object_mut().expect("an object").remove("mac");
        saved[4].text = value.to_string();
    });
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert_eq!(refused[0], "p0-1 (carrier pigeons): no link protocol has the name carrier pigeons");
    assert!(refused[1].starts_with("p0-3 (bfd): no JSON: EOF"), "{refused:?}");
    assert_eq!(refused[2], "p0-2 (bfd): session: state: no such word");
    bed.ports(3, [Some(&fast), Some(&fast)]);
    // Those without a state begin anew, and pull their ends down.
    bed.wait(6, true);
    bed.end_restore();
    assert!(bed.links.formers.is_empty());
    for name in ["p1-2", "p1-3"] {
        assert_eq!(bed.status(name, "state"), "up", "{name}");
    }
}

#[test]
fn a_session_of_another_bridge_or_tree_has_no_former_effect() {
    let port = |bridge: &str| LinkPort {
        interface: "p".to_string(),
        port: "p".to_string(),
        bridge: bridge.to_string(),
        of_port: OfPort(1),
        mac: MacAddr([2; 6]),
        bridge_mac: MacAddr([4; 6]),
        is_up: false,
        speed_mbps: 100,
        is_full_duplex: true,
    };
    use l2proto::protocol::{TreePhase, TreeState};
    let tree = |is_rapid, phase| LinkState::of_tree(TreeState { is_rapid, phase });
    let forwarding = tree(true, TreePhase::Forwarding);
    let saved = SavedSession::new(Protocol::SpanningTree, &port("br0"), forwarding, "{}");
    let (protocol, former, session) = saved.parse().expect("a state");
    assert_eq!((protocol, session.as_str()), (Protocol::SpanningTree, "{}"));
    let begins = |is_rapid| tree(is_rapid, TreePhase::Disabled);
    assert_eq!(former.state(&port("br0"), begins(true)), Some(forwarding));
    assert_eq!(former.state(&port("br0"), begins(false)), None);
    assert_eq!(former.state(&port("br0"), LinkState::UP), None);
    assert_eq!(former.state(&port("br1"), begins(true)), None);
    let now = LinkPort { is_up: true, speed_mbps: 0, mac: MacAddr([6; 6]), ..port("br0") };
    assert_eq!(former.port(now.clone()), port("br0"));
    let elsewhere = LinkPort { bridge: "br1".to_string(), ..now };
    assert_eq!(former.port(elsewhere.clone()), elsewhere);
}
