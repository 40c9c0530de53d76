//! Further port types: capture files, `null`, AF_XDP.

use crate::helpers::{LIMIT, capture, require_userspace, start, switch, vsctl, vsctl_output, wait_until};
use testkit::{Netns, TempDir, require_netns, require_programs, wait_for};

#[test]
fn pcap_ports_replay_and_record_frames() {
    require_userspace!("ports of type pcap and null");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let netns = Netns::new("pcap").unwrap();
    let daemon = start(&netns);
    let dir = TempDir::new("pcap").unwrap();
    let (rx, tx) = (dir.path().join("rx.pcap"), dir.path().join("tx.pcap"));
    std::fs::write(&rx, capture(50)).unwrap();
    vsctl(
        &daemon,
        &format!(
            "add-br br0 -- set Bridge br0 fail_mode=secure -- add-port br0 out -- set Interface out type=pcap \
             options:tx_pcap={} ofport_request=2 -- add-port br0 nil -- set Interface nil type=null ofport_request=3",
            tx.display()
        ),
    );
    daemon
        .ovs("ovs-ofctl", &["add-flow", "br0", "in_port=1,udp,actions=mod_nw_tos:32,output:2,output:3"])
        .unwrap();
    vsctl(
        &daemon,
        &format!(
            "add-port br0 in -- set Interface in type=pcap options:rx_pcap={} options:infinite_rx=true ofport_request=1",
            rx.display()
        ),
    );
    let sent = |port: &str| {
        let dump = daemon.ovs("ovs-ofctl", &["dump-ports", "br0", port]).unwrap().stdout;
        let word = dump.split("tx pkts=").nth(1).unwrap().split(',').next().unwrap();
        word.parse::<u64>().unwrap()
    };
    wait_for(LIMIT, "frames at both ports", || sent("2") > 500 && sent("3") > 500).unwrap();
    // Removing the port stops its frames.
    vsctl(&daemon, "del-port in");
    assert_eq!(sent("2"), sent("3"));
    vsctl(&daemon, "del-port out");
    let written = std::fs::read(&tx).unwrap();
    // With the field set by the flow; once all flows are installed, frames keep their order.
    let records: Vec<&[u8]> = written[24..].chunks(76).collect();
    assert!(records.len() > 500 && records.iter().all(|r| r[16 + 15] == 32));
    for two in records[records.len() - 200..].windows(2) {
        assert_eq!(two[1][16 + 29], (two[0][16 + 29] + 1) % 50);
    }
    let bad =
        vsctl_output(&daemon, "add-port br0 bad -- set Interface bad type=pcap options:rx_pcap=/nowhere");
    assert!(bad.stderr.contains("/nowhere"), "{}", bad.stderr);
    let bad = vsctl_output(
        &daemon,
        "add-port br0 worse -- set Interface worse type=pcap options:infinite_rx=maybe",
    );
    assert!(bad.stderr.contains("infinite_rx"), "{}", bad.stderr);
}

#[test]
fn frames_cross_by_af_xdp() {
    require_userspace!("ports of type afxdp");
    require_netns!();
    require_programs!("ovs-vsctl", "ethtool");
    let (net, daemon) = switch(2);
    for (host, port) in net.hosts.iter().zip(net.ports()) {
        // AF_XDP does not carry checksum offload.
        host.netns.run("ethtool", &["-K", &host.dev, "tx", "off", "tso", "off", "gso", "off"]).unwrap();
        vsctl(
            &daemon,
            &format!(
                "del-port {port} -- add-port br0 {port} -- set Interface {port} type=afxdp options:xdp-mode=generic"
            ),
        );
        wait_until(&daemon, &format!("Interface {port} link_state=up"));
    }
    crate::helpers::ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 20);
    assert!(daemon.log().contains("xdp-mode generic"), "{}", daemon.log());
    let port = net.ports()[0];
    let bad = vsctl_output(&daemon, &format!("set Interface {port} options:xdp-mode=warp"));
    assert!(bad.status.success() || bad.stderr.contains("xdp-mode"), "{}", bad.stderr);
    wait_for(LIMIT, "the error of an unknown mode", || {
        vsctl(&daemon, &format!("get Interface {port} error")).contains("xdp-mode")
    })
    .unwrap();
}
