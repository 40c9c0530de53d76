//! Rules that track connections, on the kernel datapath with real traffic.

use std::net::UdpSocket;
use std::time::Duration;

use testkit::{require_netns, require_programs, wait_for};

use crate::ct_balancer;
use crate::ct_lab::{self, Kind, Lab, talk};
use crate::helpers::{LIMIT, appctl, appctl_output, vsctl};
use crate::kernel::{dpctl, require_kernel};
use netlink::Conntrack;

#[test]
fn one_side_begins_connections_and_marks_belong_to_them() {
    require_kernel!();
    ct_lab::one_side_begins_connections_and_marks_belong_to_them(Kind::Kernel);
}

#[test]
fn a_zone_comes_from_a_field_and_clearing_forgets() {
    require_kernel!();
    ct_lab::a_zone_comes_from_a_field_and_clearing_forgets(Kind::Kernel);
}

#[test]
fn sources_and_destinations_are_translated() {
    require_kernel!();
    ct_lab::sources_and_destinations_are_translated(Kind::Kernel);
}

#[test]
fn connections_are_balanced_with_affinity_and_hairpins() {
    require_kernel!();
    ct_balancer::connections_are_balanced_with_affinity_and_hairpins(Kind::Kernel);
}

impl Lab {
    fn udp(&self, host: usize, port: u16) -> UdpSocket {
        let at = (self.address(host), port);
        let socket = self.net.hosts[host].netns.enter(|| UdpSocket::bind(at)).unwrap().unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }

    /// Remaining seconds of the tracked connection to that port.
    fn timeout_s(&self, port: u16) -> Option<u32> {
        let all = dpctl(&self.net.switch, &["-s", "dump-conntrack"]);
        let line = all
            .lines()
            .find(|l| l.split("),").next().is_some_and(|l| l.contains(&format!("dport={port}"))))?;
        let rest = line.split_once(",timeout=")?.1;
        rest.split([',', '\n']).next()?.parse().ok()
    }

    /// Numbers of the kernel's timeout policies.
    fn policies(&self) -> Vec<u32> {
        let list = || Conntrack::here().timeout_policies().unwrap();
        self.net.switch.enter(list).unwrap().into_keys().map(|id| id.0.get()).collect()
    }

    /// Sets columns that stock tools of this machine do not know.
    fn transact(&self, table: &str, row: &str) {
        let operation = format!(r#"{{"op":"update","table":"{table}","where":[],"row":{row}}}"#);
        let database = format!("unix:{}", self.daemon.rundir().join("db.sock").display());
        let transaction = format!(r#"["Open_vSwitch",{operation}]"#);
        let out = self.net.switch.run("ovsdb-client", &["transact", &database, &transaction]).unwrap();
        assert!(out.stdout.contains("count") && !out.stdout.contains("error"), "{}", out.stdout);
    }
}

/// Timeouts of the kernel's own policies are far from these.
fn near(found: Option<u32>, wanted: u32) -> bool {
    found.is_some_and(|s| (wanted - 60..=wanted).contains(&s))
}

/// Zone 5 has a policy, which follows the database; flows name it by protocol.
#[test]
fn timeouts_of_a_zone_are_those_of_its_policy() {
    require_kernel!();
    require_programs!("ovsdb-client");
    let lab = Lab::new(
        Kind::Kernel,
        "ip,ct_state=-trk actions=ct(table=1,zone=5)
         table=1,ip,ct_state=+trk+new actions=ct(commit,zone=5),normal
         table=1,ip,ct_state=+trk+est actions=normal",
    );
    vsctl(
        &lab.daemon,
        "--id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:system=@d",
    );
    vsctl(
        &lab.daemon,
        "add-zone-tp system zone=5 udp_single=1000 udp_multiple=2000 tcp_established=3000 icmp_reply=9",
    );
    // The kernel has no timeout of replies to pings: the bridge says so.
    let status = vsctl(&lab.daemon, "get bridge br0 status:notice");
    assert!(status.contains("system@ovs-system has no timeout icmp_reply"), "{status}");
    assert_eq!(lab.policies(), [1]);
    let (a, b) = (lab.udp(0, 6001), lab.udp(1, 6001));
    let mut got = [0; 9];
    wait_for(LIMIT, "a datagram", || {
        a.send_to(b"ask", b.local_addr().unwrap()).unwrap();
        b.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        b.recv_from(&mut got).is_ok()
    })
    .unwrap();
    assert!(near(lab.timeout_s(6001), 1000), "{}", dpctl(&lab.net.switch, &["-s", "dump-conntrack"]));
    let flows = dpctl(&lab.net.switch, &["dump-flows"]);
    assert!(flows.contains("timeout=ovs_tp_1_udp4"), "{flows}");
    // After the reply, the stream has the other timeout.
    b.send_to(b"answer", a.local_addr().unwrap()).unwrap();
    a.recv_from(&mut got).unwrap();
    // Not before two seconds after it began.
    wait_for(LIMIT, "the timeout of replied connections", || {
        a.send_to(b"ask", b.local_addr().unwrap()).unwrap();
        near(lab.timeout_s(6001), 2000)
    })
    .unwrap();
    let server = lab.listen(1, 6002);
    let client = lab.connect(0, (lab.address(1), 6002)).expect("the rules forward");
    let accepted = server.accept().unwrap().0;
    talk(client.try_clone().unwrap(), accepted.try_clone().unwrap());
    assert!(near(lab.timeout_s(6002), 3000), "{}", dpctl(&lab.net.switch, &["-s", "dump-conntrack"]));

    // A changed policy has another number; the former one goes once no flow names it.
    lab.transact("CT_Timeout_Policy", r#"{"timeouts":["map",[["udp_single",500]]]}"#);
    wait_for(LIMIT, "the new policy", || lab.policies().contains(&2)).unwrap();
    wait_for(LIMIT, "no complaint", || !vsctl(&lab.daemon, "get bridge br0 status").contains("icmp_reply"))
        .unwrap();
    let (c, d) = (lab.udp(0, 6003), lab.udp(1, 6003));
    c.send_to(b"ask", d.local_addr().unwrap()).unwrap();
    d.recv_from(&mut got).unwrap();
    assert!(near(lab.timeout_s(6003), 500), "{}", dpctl(&lab.net.switch, &["-s", "dump-conntrack"]));
    wait_for(LIMIT * 4, "the end of the former policy", || lab.policies() == [2]).unwrap();

    // Limits of the database are not for commands.
    lab.transact("CT_Zone", r#"{"limit":3}"#);
    wait_for(LIMIT, "the limit", || {
        appctl(&lab.daemon, "dpctl/ct-get-limits zone=5").contains("zone=5,limit=3,count=")
    })
    .unwrap();
    let refused = appctl_output(&lab.daemon, "dpctl/ct-set-limits zone=5,limit=9");
    assert!(refused.stderr.contains("the zone limits are set via database"), "{}", refused.stderr);

    // Without a zone there are neither.
    vsctl(&lab.daemon, "del-zone-tp system zone=5");
    assert!(!appctl(&lab.daemon, "dpctl/ct-get-limits").contains("zone=5"));
    appctl(&lab.daemon, "dpctl/ct-set-limits zone=5,limit=9");
    appctl(&lab.daemon, "dpctl/ct-del-limits zone=5");
    wait_for(LIMIT * 4, "the end of all policies", || lab.policies().is_empty()).unwrap();
    let (e, f) = (lab.udp(0, 6004), lab.udp(1, 6004));
    e.send_to(b"ask", f.local_addr().unwrap()).unwrap();
    f.recv_from(&mut got).unwrap();
    assert!(lab.timeout_s(6004).is_some_and(|s| s < 200), "{}", lab.connections());
    let flows = dpctl(&lab.net.switch, &["dump-flows"]);
    assert!(!flows.contains("ovs_tp_"), "{flows}");
}
