//! Port descriptions, status and configuration by OpenFlow.

use testkit::{Capture, require_netns, require_programs, wait_for};

use super::frames::{eth, source};
use super::{LIMIT, Lab, VERSIONS, received, send, wait_text};

const BROADCAST: &str = "ffffffffffff";

/// The description of one port: OpenFlow 1.0 can only request all.
fn described(lab: &Lab, port: u32) -> String {
    let text = lab.ofctl("--no-names dump-ports-desc br0");
    let rest = text.split(&format!("\n {port}(")).nth(1).unwrap_or_else(|| panic!("no port {port}: {text}"));
    rest.split("speed:").next().unwrap_or_default().to_string()
}

#[test]
fn port_status_messages_report_changes() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ip");
    let lab = Lab::new(2);
    let (one, two) = (lab.host(1), lab.host(2));
    for version in VERSIONS {
        let monitor = lab.monitor(&format!("-O {version} --no-names monitor br0 65534"));
        let reported = |words: &[&str]| {
            let text = monitor.stderr();
            text.split("OFPT_PORT_STATUS").skip(1).any(|t| words.iter().all(|w| t.contains(w)))
        };
        let wait = |words: &[&str]| {
            let waited = wait_for(LIMIT, &format!("{words:?}"), || reported(words));
            waited.unwrap_or_else(|why| panic!("{version}: {why}\n{}", monitor.stderr()));
        };
        // The peer device goes down: the local one loses its carrier.
        one.netns.ip(&format!("link set dev {} down", one.dev)).unwrap();
        wait(&["MOD: 1(", "LINK_DOWN"]);
        one.netns.up(&one.dev).unwrap();
        wait_for(LIMIT, "the link", || !described(&lab, 1).contains("LINK_DOWN")).unwrap();
        // An operator sets the local device down: the port reports OFPPC_PORT_DOWN, as if set by a controller.
        lab.net.switch.ip(&format!("link set dev {} down", one.port)).unwrap();
        wait(&["MOD: 1(", "PORT_DOWN", "LINK_DOWN"]);
        lab.net.switch.up(&one.port).unwrap();
        wait_for(LIMIT, "the port", || !described(&lab, 1).contains("_DOWN")).unwrap();
        lab.vsctl(&format!("del-port br0 {}", two.port));
        wait(&["DEL: 2("]);
        lab.vsctl(&format!("add-port br0 {} -- set interface {} ofport_request=2", two.port, two.port));
        wait(&["ADD: 2("]);
        lab.ofctl(&format!("-O {version} --no-names mod-port br0 2 no-flood"));
        // The flag does not exist in 1.1 to 1.4; 1.0 has it.
        if version == "OpenFlow10" {
            wait(&["MOD: 2(", "NO_FLOOD"]);
            lab.ofctl("--no-names mod-port br0 2 flood");
        }
    }
}

#[test]
fn a_port_follows_its_configuration() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "tcpdump");
    let lab = Lab::new(3);
    lab.rules("OpenFlow10", "in_port=1,actions=flood\nin_port=3,actions=all");
    let frame = |n: u8| eth(BROADCAST, &source(n), "88b5");
    let watch: Capture = lab.watch(2);
    // The third host receives all frames of host 1: its copy shows that a frame is processed.
    let third = lab.watch(3);
    let pass = |n: u8| {
        send(lab.host(1), &[frame(n)]);
        third.wait_for(&format!("02aa 0000 00{n:02x}"), LIMIT).unwrap();
    };
    pass(1);
    lab.ofctl("mod-port br0 2 no-flood");
    assert!(lab.ofctl("show br0").contains("NO_FLOOD"));
    pass(2);
    // ALL includes ports with `no-flood`.
    send(lab.host(3), &[frame(3)]);
    watch.wait_for("02aa 0000 0003", LIMIT).unwrap();
    lab.ofctl("mod-port br0 2 flood");
    pass(4);
    lab.ofctl("mod-port br0 2 no-forward");
    pass(5);
    lab.ofctl("mod-port br0 2 forward");
    pass(6);
    lab.ofctl("mod-port br0 2 down");
    wait_for(LIMIT, "port 2 down", || described(&lab, 2).contains("PORT_DOWN")).unwrap();
    pass(7);
    // The device itself is down, so the port stays down.
    let device = lab.net.ports()[1].to_string();
    let link = || lab.net.switch.ip(&format!("link show dev {device}")).unwrap();
    assert!(link().contains("state DOWN"), "{}", link());
    assert!(described(&lab, 2).contains("LINK_DOWN"), "{}", described(&lab, 2));
    lab.ofctl("mod-port br0 2 up");
    wait_for(LIMIT, "port 2 up", || {
        let desc = described(&lab, 2);
        !desc.contains("PORT_DOWN") && !desc.contains("LINK_DOWN")
    })
    .unwrap();
    pass(8);
    // A port with `no-receive`.
    lab.ofctl("mod-port br0 1 no-receive");
    send(lab.host(1), &[frame(9)]);
    lab.ofctl("mod-port br0 1 receive");
    pass(10);
    let seen: Vec<String> = received(&watch.stop().unwrap());
    let expected: Vec<String> = [1, 3, 4, 6, 8, 10].map(frame).into();
    assert_eq!(seen, expected);
    drop(third);
}

#[test]
fn a_no_packet_in_port_sends_no_packet_in() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(2);
    lab.rules("OpenFlow10", "in_port=2,actions=controller");
    lab.ofctl("mod-port br0 1 no-packet-in");
    let monitor = lab.monitor("monitor br0 65534");
    send(lab.host(1), &[eth(BROADCAST, &source(1), "88b5")]);
    send(lab.host(2), &[eth(BROADCAST, &source(2), "88b5")]);
    wait_text(&monitor, "dl_src=02:aa:00:00:00:02");
    assert!(!monitor.stderr().contains("dl_src=02:aa:00:00:00:01"), "{}", monitor.stderr());
}
