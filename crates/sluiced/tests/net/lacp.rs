//! LACP with partners on veth links: Open vSwitch, and another Sluice.

use testkit::{Daemon, Netns, RunDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, serving, spec, start, vsctl, wait_until};
use crate::overlays::stock;

/// Two switches with two links, each link a single port with LACP on both sides.
struct Pair {
    ours: Daemon,
    theirs: Vec<Daemon>,
    here: Netns,
    _there: Netns,
    _dir: RunDir,
    /// Devices of each link: here, there.
    links: Vec<(String, String)>,
}

fn shown(daemon: &Daemon, port: &str) -> String {
    appctl(daemon, &format!("lacp/show {port}"))
}

/// Waits until both sides of a link are current and synchronized.
fn agreed(daemon: &Daemon, port: &str) {
    let agreed = wait_for(LIMIT, "the partner to agree", || {
        let shown = shown(daemon, port);
        shown.contains(": current attached\n") && shown.contains("  may_enable: true\n")
    });
    agreed.unwrap_or_else(|why| panic!("{why}: {}", shown(daemon, port)));
    wait_until(daemon, &format!("Interface {port} lacp_current=true"));
}

impl Pair {
    fn new(modes: [&str; 2], partner: impl FnOnce(&Netns, &RunDir) -> Vec<Daemon>) -> Pair {
        let (here, there) = (Netns::new("here").unwrap(), Netns::new("there").unwrap());
        let dir = RunDir::new("there").unwrap();
        let links: Vec<(String, String)> = (0..2).map(|_| testkit::veth(&here, &there).unwrap()).collect();
        for (a, b) in &links {
            here.up(a).unwrap();
            there.up(b).unwrap();
        }
        let (ours, theirs) = (start(&here), partner(&there, &dir));
        let pair = Pair { ours, theirs, here, _there: there, _dir: dir, links };
        for (daemon, mode, side) in [(&pair.ours, modes[0], 0), (&pair.theirs[0], modes[1], 1)] {
            let ports = pair.links.iter().enumerate().map(|(n, (a, b))| {
                let name = [a, b][side];
                let n = 10 * (side + 1) + n;
                format!(
                    " -- add-port br0 {name} -- set Port {name} lacp={mode} other_config:lacp-time=fast \
                     -- set Interface {name} ofport_request={n} other_config:lacp-aggregation-key={n}"
                )
            });
            let ports: String = ports.collect();
            vsctl(
                daemon,
                &format!("add-br br0 -- set Bridge br0 datapath_type=netdev fail_mode=secure{ports}"),
            );
        }
        pair
    }
}

fn both_sides_agree(modes: [&str; 2], partner: impl FnOnce(&Netns, &RunDir) -> Vec<Daemon>) {
    let pair = Pair::new(modes, partner);
    let sides = |n: usize| {
        let (a, b) = &pair.links[n];
        [(&pair.ours, a.clone()), (&pair.theirs[0], b.clone())]
    };
    for (daemon, port) in sides(0).into_iter().chain(sides(1)) {
        agreed(daemon, &port);
    }
    let (here, there) = &pair.links[0];
    for (daemon, port, keys) in [(&pair.ours, here, [10, 20]), (&pair.theirs[0], there, [20, 10])] {
        let shown = shown(daemon, port);
        let keys = [format!("  actor key: {}\n", keys[0]), format!("  partner key: {}\n", keys[1])];
        assert!(keys.iter().all(|key| shown.contains(key)), "{shown}");
    }
    // A link without a carrier, and with it again; the other stays.
    pair.here.ip(&format!("link set dev {here} down")).unwrap();
    for (daemon, port) in sides(0) {
        wait_for(LIMIT, "the link to be dead", || shown(daemon, &port).contains("  may_enable: false\n"))
            .unwrap();
    }
    for (daemon, port) in sides(1) {
        assert!(shown(daemon, &port).contains(": current attached\n"));
    }
    pair.here.up(here).unwrap();
    for (daemon, port) in sides(0) {
        agreed(daemon, &port);
    }
    let counted = appctl(&pair.ours, &format!("lacp/show-stats {here}"));
    assert!(
        counted.contains("  Carrier Status Changed: 2\n  ") || counted.ends_with("Changed: 2\n"),
        "{counted}"
    );
}

#[test]
fn links_agree_with_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    both_sides_agree(["active", "passive"], stock);
}

#[test]
fn links_agree_with_another_sluice() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    both_sides_agree(["passive", "active"], |netns, dir| vec![serving(&spec(netns).rundir(dir))]);
}
