//! Tunnels of the switch go on, with what packets and commands gave to them.

use super::*;
use crate::overlays::{HERE, Lab, THERE, require_overlay, tunnel};

#[test]
fn no_packet_is_lost_in_a_tunnel_in_either_direction() {
    require_overlay!();
    let lab = Lab::new("handtun");
    let (host, far) = (&lab.host().netns, &lab.far().netns);
    lab.device(&format!("vxlan id 5 remote {HERE} local {THERE} dstport 4789"), "10.0.0.2/16");
    vsctl(&lab.daemon, &tunnel("tun", "vxlan", &format!("remote_ip={THERE},key=5")));
    testkit::reachable(host, [10, 0, 0, 2].into(), LIMIT).unwrap();
    appctl(&lab.daemon, "tnl/neigh/aging 700");
    appctl(&lab.daemon, "tnl/neigh/retrans_time 1500");
    appctl(&lab.daemon, "tnl/egress_port_range 40000 50000");
    appctl(&lab.daemon, "tnl/neigh/set br-phy 172.16.0.77 02:00:00:00:00:4d");
    appctl(&lab.daemon, &format!("ovs/route/add 192.0.2.0/24 br-phy {THERE} pkt_mark=5"));
    let settings = || {
        let shown = [
            "tnl/neigh/aging",
            "tnl/neigh/retrans_time",
            "tnl/egress_port_range",
            "tnl/neigh/show",
            "ovs/route/show",
        ];
        let all = shown.map(|command| appctl(&lab.daemon, command));
        // The kernel's part follows its own changes.
        let own = |line: &&str| !line.starts_with("Cached: ");
        all.concat().lines().filter(own).map(str::to_string).collect::<Vec<_>>()
    };
    let before = settings();
    let shown = before.join("\n");
    for wanted in ["700", "1500", "40000-50000", "172.16.0.77", THERE, "User: 192.0.2.0/24 MARK 5"] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    let mut successors: Vec<Successor> = Vec::new();
    for (from, to, address) in [(host, far, [10, 0, 0, 2]), (far, host, [10, 0, 0, 1])] {
        let (lost, disordered, gap_us) = with_stream_to((from, to), address.into(), 1, |_| {
            let pid = successors.last().map_or(lab.daemon.pid(), |last| last.pid);
            successors.push(hand_over(&lab.daemon, pid));
        });
        println!("a handover at 1,000 packets/s in a tunnel: longest gap {gap_us} us");
        assert_eq!((lost, disordered), (0, 0), "lost, disordered");
        assert_eq!(settings(), before);
    }
}
