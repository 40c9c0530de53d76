//! Expired connections go when the sweep runs, in virtual time.

use super::*;
use crate::helpers::LIMIT;
use packet::checksum::checksum;

/// The first fragment of a datagram of UDP, in hexadecimal digits.
fn fragment() -> String {
    let mut frame = vec![0x50, 0x54, 0, 0, 0, 7, 0x50, 0x54, 0, 0, 0, 5, 8, 0];
    let mut header = vec![0x45, 0, 5, 0, 0, 1, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.resize(14 + 0x500, 0);
    frame.iter().map(|b| format!("{b:02x}")).collect()
}

fn udp(source: u16) -> String {
    format!(
        "in_port(1),{FROM_5_TO_7},eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),\
         udp(src={source},dst=53)"
    )
}

#[test]
fn expired_connections_go_when_the_sweep_runs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "priority=9,udp,nw_frag=no,actions=ct(commit,zone=5),2"]);
    lab.ofctl(&["add-flow", "br0", "priority=9,udp,nw_frag=first,actions=ct(zone=6),2"]);
    lab.appctl("dpctl/ct-set-limits zone=5,limit=1");
    lab.appctl("dpctl/ct-set-sweep-interval 3600000");
    assert_eq!(lab.appctl("dpctl/ct-get-sweep-interval"), "3600000\n");
    lab.receive("p1", &udp(1000));
    lab.receive("p1", &fragment());
    let connections = || lab.appctl("dpctl/ct-get-nconns");
    let listed = || lab.appctl("dpctl/dump-conntrack").lines().count();
    assert_eq!((connections().as_str(), listed()), ("1\n", 1));
    assert!(lab.appctl("dpctl/ipf-get-status").contains("num frag: 1\n"));
    // The thread begins with the next tick of the clock.
    lab.appctl("time/warp 2000 1000");
    let tasks = format!("/proc/{}/task", lab.daemon.pid());
    wait_for(LIMIT, "the thread that sweeps", || {
        let mut names = std::fs::read_dir(&tasks).unwrap().flatten().map(|task| task.path().join("comm"));
        names.any(|comm| std::fs::read_to_string(comm).is_ok_and(|name| name.trim() == "ct_clean"))
    })
    .unwrap();
    // Expired, but not swept. The fragment goes with the first turn of the thread that sweeps, so that had its turn.
    lab.appctl("time/warp 59000");
    let status = || lab.appctl("dpctl/ipf-get-status");
    wait_for(LIMIT, "the fragment to expire", || status().contains("num frag: 0\n")).unwrap();
    assert_eq!((connections().as_str(), listed()), ("1\n", 0));
    // It takes a place still.
    lab.receive("p1", &udp(1001));
    assert_eq!((connections().as_str(), listed()), ("1\n", 0));
    assert_eq!(lab.appctl("coverage/read-counter conntrack_zone_full"), "1\n");
    // A shorter interval takes effect at once.
    lab.appctl("dpctl/ct-set-sweep-interval 5000");
    wait_for(LIMIT, "the sweep", || connections() == "0\n").unwrap();
    lab.receive("p1", &udp(1001));
    assert_eq!((connections().as_str(), listed()), ("1\n", 1));
    // From then on it passes within each interval.
    lab.appctl("time/warp 59000");
    assert_eq!((connections().as_str(), listed()), ("1\n", 1));
    lab.appctl("time/warp 6001");
    wait_for(LIMIT, "the next sweep", || connections() == "0\n").unwrap();
}
