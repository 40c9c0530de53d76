//! LACP with partners on veth links: Open vSwitch, another Sluice; the kernel's bond and a team of teamd, in a guest.

use testkit::{Daemon, Netns, RunDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, spec, start, vsctl, wait_until};
use crate::overlays::stock;
use crate::partners::is_known_or_skip;

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
    both_sides_agree(["passive", "active"], |netns, dir| vec![spec(netns).rundir(dir).start().unwrap()]);
}

/// Two links to a namespace. Ours have LACP, one key, and wait for the partner; theirs are down.
struct Links {
    ours: Daemon,
    there: Netns,
    _here: Netns,
    links: Vec<(String, String)>,
}

impl Links {
    fn new() -> Links {
        let (here, there) = (Netns::new("here").unwrap(), Netns::new("there").unwrap());
        let links: Vec<(String, String)> = (0..2).map(|_| testkit::veth(&here, &there).unwrap()).collect();
        let ours = start(&here);
        let port = |(port, _): &(String, String)| {
            here.up(port).unwrap();
            format!(
                " -- add-port br0 {port} -- set Port {port} lacp=passive other_config:lacp-time=fast \
                 -- set Interface {port} other_config:lacp-aggregation-key=5"
            )
        };
        let ports: String = links.iter().map(port).collect();
        vsctl(&ours, &format!("add-br br0 -- set Bridge br0 datapath_type=netdev fail_mode=secure{ports}"));
        Links { ours, there, _here: here, links }
    }
}

/// The kernel's bonding driver takes both links into one aggregator.
#[test]
fn the_bond_of_the_kernel_uses_both_links() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    if !is_known_or_skip("the_bond_of_the_kernel_uses_both_links", "bond") {
        return;
    }
    let Links { ours, there, links, .. } = &Links::new();
    there.ip("link add bond9 type bond mode 802.3ad miimon 100 lacp_rate fast").unwrap();
    for (_, device) in links {
        there.ip(&format!("link set dev {device} master bond9")).unwrap();
    }
    there.up("bond9").unwrap();
    links.iter().for_each(|(port, _)| agreed(ours, port));
    let told = || there.run("cat", &["/proc/net/bonding/bond9"]).unwrap().stdout;
    let both = wait_for(LIMIT, "an aggregator of both links", || {
        let told = told();
        told.contains("\tNumber of ports: 2\n") && told.contains("\tPartner Key: 5\n")
    });
    both.unwrap_or_else(|why| panic!("{why}: {}", told()));
    let counted = appctl(ours, "lacp/show-stats");
    assert_eq!(counted.matches("  RX Bad PDUs: 0\n").count(), 2, "{counted}");
}

/// A team selects both links as current.
#[test]
fn teamd_uses_both_links() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "teamd", "teamdctl");
    if !is_known_or_skip("teamd_uses_both_links", "team") {
        return;
    }
    let Links { ours, there, links, .. } = &Links::new();
    let ports: Vec<String> = links.iter().map(|(_, device)| format!("\"{device}\": {{}}")).collect();
    let team = format!("team{}", &links[0].1);
    let config = format!(
        "{{\"device\": \"{team}\", \"runner\": {{\"name\": \"lacp\", \"active\": true, \"fast_rate\": true}}, \
         \"link_watch\": {{\"name\": \"ethtool\"}}, \"ports\": {{{}}}}}",
        ports.join(", ")
    );
    let _teamd = there.spawn("teamd", &["--usock-enable", "--config", &config]).unwrap();
    wait_for(LIMIT, "the team", || there.up(&team).is_ok()).unwrap();
    let told =
        || there.run("teamdctl", &[&team, "state"]).map_or_else(|why| format!("{why:#}"), |out| out.stdout);
    let both = wait_for(LIMIT, "both ports of the team", || {
        let told = told();
        told.matches("      selected: yes\n").count() == 2
            && told.matches("      state: current\n").count() == 2
    });
    both.unwrap_or_else(|why| panic!("{why}: {}", told()));
    links.iter().for_each(|(port, _)| agreed(ours, port));
}
