//! Flow monitors as `ovs-ofctl monitor br0 watch:…` shows them.

use super::{Lab, wait_text};
use testkit::{require_netns, require_programs};

/// Versions, with the event of a rule that exists when the monitor begins.
const VERSIONS: [(&str, &str); 6] = [
    ("OpenFlow10", "ADDED"),
    ("OpenFlow11", "ADDED"),
    ("OpenFlow12", "ADDED"),
    ("OpenFlow13", "ADDED"),
    ("OpenFlow14", "INITIAL"),
    ("OpenFlow15", "INITIAL"),
];

/// The changes in the debug log of `ovs-ofctl`, which has each message at once.
fn events(log: &str) -> Vec<&str> {
    let mut logged = false;
    let mut shown = Vec::new();
    for line in log.lines() {
        if !line.starts_with(" event=") {
            logged = line.contains("received: ") && line.contains("FLOW_MONITOR reply");
        } else if logged {
            shown.push(line);
        }
    }
    shown
}

#[test]
fn ofctl_shows_changes_of_rules() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(2);
    for (version, initial) in VERSIONS {
        lab.ofctl("del-flows br0");
        lab.ofctl("add-flow br0 table=1,cookie=7,ip,actions=2");
        let monitor = lab.monitor(&format!("-O {version} monitor br0 watch:"));
        let change = |command: &str| lab.ofctl(command);
        change("add-flow br0 tcp,actions=1");
        change("--strict mod-flows br0 tcp,actions=2");
        lab.ofctl_input("-O OpenFlow14 --bundle replace-flows br0 -", "table=2,udp,actions=drop\n");
        change("add-flow br0 arp,hard_timeout=1,actions=drop");
        wait_text(&monitor, "reason=hard");
        let text = monitor.stderr();
        let shown = events(&text);
        assert_eq!(
            shown,
            [
                &*format!(" event={initial} table=1 cookie=0x7 ip actions=output:2"),
                " event=ADDED table=0 cookie=0 tcp actions=output:1",
                " event=MODIFIED table=0 cookie=0 tcp actions=output:2",
                " event=DELETED reason=delete table=0 cookie=0 tcp actions=output:2",
                " event=DELETED reason=delete table=1 cookie=0x7 ip actions=output:2",
                " event=ADDED table=2 cookie=0 udp",
                " event=ADDED table=0 hard_timeout=1 cookie=0 arp",
                " event=DELETED reason=hard table=0 hard_timeout=1 cookie=0 arp",
            ],
            "{version}"
        );
    }
}

#[test]
fn ofctl_filters_changes() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(2);
    for (version, _) in VERSIONS {
        lab.ofctl("del-flows br0");
        let monitor = lab.monitor(&format!("-O {version} monitor br0 watch:!initial,table=3,out_port=2,ip"));
        for rule in ["table=3,arp,actions=2", "ip,actions=2", "table=3,ip,actions=1", "table=3,tcp,actions=2"]
        {
            lab.ofctl(&format!("add-flow br0 {rule}"));
        }
        wait_text(&monitor, "event=");
        let text = monitor.stderr();
        let shown = events(&text);
        assert_eq!(shown, [" event=ADDED table=3 cookie=0 tcp actions=output:2"], "{version}");
    }
}
