//! Migration, restarts, traces, capabilities.

use std::time::Duration;

use testkit::{Running, wait_for};

use crate::lab::{Kind, LIMIT, Lab, Machine, encapsulates, on_kernel};
use crate::sockets::{connect, serve, transfer};

/// Interval of the pings under a restart.
const INTERVAL: Duration = Duration::from_millis(20);

pub(crate) fn migration(kind: Kind) {
    let lab = Lab::new(kind, 2);
    lab.network(1);
    lab.network(2);
    let (peer, routed) = (lab.machine(0, 1, 12), lab.machine(0, 2, 11));
    let source = lab.machine(0, 1, 11);
    lab.sync();
    peer.reaches(&source.ip);
    routed.reaches(&source.ip);
    // Both chassis have the port while the machine moves.
    lab.nb("lsp-set-options n1h11 requested-chassis=hv1,hv2 activation-strategy=rarp");
    let target = lab.bare_machine(1, 1, 11);
    let bound =
        |column: &str| lab.sb(&format!("--bare --columns={column} find Port_Binding logical_port=n1h11"));
    wait_for(LIMIT, "both chassis", || !bound("additional_chassis").trim().is_empty()).unwrap();
    lab.sync();
    peer.reaches(&source.ip);
    // The machine starts at its target, and announces itself.
    source.netns.ip(&format!("link set dev {} down", source.dev)).unwrap();
    target.configure(1);
    wait_for(LIMIT, "the activated target", || {
        rarp(&target);
        peer.can_ping(&target.ip)
    })
    .unwrap();
    lab.apply("lsp-set-options n1h11 requested-chassis=hv2");
    lab.chassis[0].vsctl(&format!("del-port br-int {}", source.port));
    let hv2 = lab.sb("--bare --columns=_uuid find Chassis name=hv2");
    wait_for(LIMIT, "the target alone", || bound("chassis") == hv2 && bound("additional_chassis").is_empty())
        .unwrap();
    lab.sync();
    let _server = serve(&target, 80, "target");
    for machine in [&peer, &routed] {
        machine.reaches(&target.ip);
        assert_eq!(connect(machine, &target.ip, 80).as_deref(), Ok("target"));
    }
    lab.wait_for_encapsulation(&peer, &target.ip);
}

/// Sends a frame, given in hexadecimal digits, from an interface.
const SEND: &str = "\
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
s.send(bytes.fromhex(sys.argv[2]))
";

/// Sends a RARP request, as hypervisors do for a migrated machine.
fn rarp(machine: &Machine) {
    let mac: Vec<u8> = machine.mac.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    let mut frame = vec![0xff; 6];
    frame.extend(&mac);
    frame.extend([0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    for _ in 0..2 {
        frame.extend(&mac);
        frame.extend([0; 4]);
    }
    frame.resize(60, 0);
    let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
    machine.netns.run("/usr/bin/python3", &["-c", SEND, &machine.dev, &hex]).unwrap();
}

/// Starts pings of one machine.
fn pings(from: &Machine, to: &str) -> Running {
    from.netns.spawn("ping", &["-n", "-q", "-i", &INTERVAL.as_secs_f32().to_string(), to]).unwrap()
}

/// Ends them; returns how many were sent and answered.
fn end(pings: Running) -> (u32, u32) {
    let out = pings.stop(testkit::Signal::INT, LIMIT).unwrap().stdout;
    let number = |end: &str| {
        let part = out.lines().flat_map(|l| l.split(", ")).find_map(|p| p.strip_suffix(end));
        part.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{out}"))
    };
    (number(" packets transmitted"), number(" received"))
}

pub(crate) fn restarts(kind: Kind) {
    let mut lab = Lab::new(kind, 2);
    lab.network(1);
    lab.network(2);
    let (near, far) = (lab.machine(0, 1, 11), lab.machine(1, 2, 12));
    lab.nb("acl-add n1 to-lport 1000 'outport == \"n1h11\" && ip4' allow-related");
    // The controller has its flows in order before it replaces those of its predecessor.
    lab.chassis[0].vsctl("set Open_vSwitch . external_ids:ovn-ofctrl-wait-before-clear=3000");
    lab.sync();
    near.reaches(&far.ip);
    let running = pings(&near, &far.ip);
    lab.chassis[0].restart_controller();
    lab.sync();
    let third = lab.machine(0, 1, 13);
    lab.sync();
    far.reaches(&third.ip);
    let (sent, received) = end(running);
    println!("restart of ovn-controller: {} of {sent} pings lost", sent - received);
    assert!(received * 10 >= sent * 9, "{received} of {sent}");
    // A crash of the switch: ports and flows come back by themselves.
    let _server = serve(&far, 80, "far");
    let running = pings(&near, &far.ip);
    lab.chassis[0].crash_switch();
    lab.chassis[0].address_underlay(1);
    near.reaches(&far.ip);
    let (sent, received) = end(running);
    println!("crash of the switch: {} of {sent} pings lost", sent - received);
    assert!(received > 0);
    lab.sync();
    assert_eq!(connect(&near, &far.ip, 80).as_deref(), Ok("far"));
    transfer(&near, &far.ip, 80, "far");
    assert_eq!(connect(&third, &far.ip, 80).as_deref(), Ok("far"));
}

/// `ovs-vswitchd` makes way for the switch on the same database, while `ovn-controller` runs.
pub(crate) fn takeover(kind: Kind) {
    let mut lab = Lab::new(Kind::Stock, 2);
    lab.network(1);
    lab.network(2);
    let (near, far) = (lab.machine(0, 1, 11), lab.machine(1, 2, 12));
    lab.sync();
    near.reaches(&far.ip);
    let running = pings(&far, &near.ip);
    lab.chassis[0].replace_switch(kind);
    lab.chassis[0].address_underlay(1);
    near.reaches(&far.ip);
    let (sent, received) = end(running);
    println!("takeover: {} of {sent} pings lost", sent - received);
    assert!(received > 0);
    lab.sync();
    let _server = serve(&far, 80, "far");
    assert_eq!(connect(&near, &far.ip, 80).as_deref(), Ok("far"));
    // New ports come to it.
    let third = lab.machine(0, 1, 13);
    lab.sync();
    lab.chassis[0].wait_installed(&third);
    assert_eq!(connect(&third, &far.ip, 80).as_deref(), Ok("far"));
}

pub(crate) fn traces(kind: Kind) {
    let lab = Lab::new(kind, 2);
    lab.network(1);
    lab.network(2);
    let (near, local, far) = (lab.machine(0, 1, 11), lab.machine(0, 1, 12), lab.machine(1, 2, 11));
    lab.apply("acl-add n1 to-lport 1000 'outport == \"n1h12\" && udp.dst == 9' drop");
    near.reaches(&local.ip);
    near.reaches(&far.ip);
    let chassis = &lab.chassis[0];
    let number = |machine: &Machine| chassis.vsctl(&format!("get Interface {} ofport", machine.port));
    let router = "0a:00:00:00:01:01";
    for (to, mac, port, logical) in [
        (&local, local.mac.as_str(), 8, "output to \"n1h12\""),
        (&local, local.mac.as_str(), 9, ""),
        (&far, router, 8, "output to \"n2h11\""),
    ] {
        let logical_trace = lab.trace(
            "n1",
            &format!(
                "inport == \"n1h11\" && eth.src == {} && eth.dst == {mac} && ip4.src == {} && ip4.dst == {} \
                 && ip.ttl == 64 && udp.dst == {port}",
                near.mac, near.ip, to.ip
            ),
        );
        let outputs = logical_trace.matches(", type \"\" */").count();
        assert_eq!(outputs, usize::from(!logical.is_empty()), "{logical_trace}");
        assert!(logical_trace.contains(logical), "{logical_trace}");
        let trace = chassis.appctl(&format!(
            "ofproto/trace br-int in_port={},udp,dl_src={},dl_dst={mac},nw_src={},nw_dst={},nw_ttl=64,udp_src=1,udp_dst={port} --ct-next trk,new",
            number(&near), near.mac, near.ip, to.ip
        ));
        let last =
            trace.lines().rfind(|l| l.starts_with("Datapath actions: ")).unwrap_or_else(|| panic!("{trace}"));
        match (logical.is_empty(), to.ip == local.ip) {
            (true, _) => assert_eq!(last, "Datapath actions: drop", "{trace}"),
            (false, true) => {
                assert!(trace.contains(&format!("output:{}", number(&local))), "{trace}");
                assert!(!encapsulates(last), "{trace}");
            }
            (false, false) => {
                assert!(encapsulates(last), "{trace}");
                assert!(trace.contains("dec_ttl") || trace.contains("nw_ttl"), "{trace}");
            }
        }
    }
}

/// Features that `ovn-controller` finds.
pub(crate) fn capabilities(kind: Kind) {
    let lab = Lab::new(kind, 1);
    lab.network(1);
    let machine = lab.machine(0, 1, 11);
    lab.sync();
    lab.chassis[0].wait_installed(&machine);
    let chassis = &lab.chassis[0];
    let row = chassis.vsctl("--bare --columns=capabilities list Datapath");
    let tunnels = format!("tnl_push_pop={}", !on_kernel());
    // The userspace datapath has the limit of its start.
    let tags = format!("max_vlan_headers={}", if on_kernel() { 2 } else { 1 });
    for feature in ["ct_zero_snat=true", "ct_state_nat=true", &tags, "recirc=true", &tunnels] {
        assert!(row.contains(feature), "{feature}: {row}");
    }
    let log = chassis.controller_log();
    let supported = |feature: &str| log.contains(&format!("OVS Feature: {feature}, state: supported"));
    // Kernel 6.1 has no symmetric hash.
    let is_symmetric = row.contains("max_hash_alg=1");
    assert!(is_symmetric || on_kernel(), "{row}");
    for (feature, has) in
        [("ct_zero_snat", true), ("ct_flush", true), ("dp_hash_l4_sym_support", is_symmetric)]
    {
        assert_eq!(supported(feature), has, "{feature}: {log}");
    }
    assert_eq!(chassis.vsctl("get Bridge br-int fail_mode"), "secure");
    let status = chassis.ovn_appctl("connection-status");
    assert_eq!(status.trim(), "connected");
    // Its conversation has no errors.
    let errors: Vec<_> =
        log.lines().filter(|l| l.contains("|ERR|") || l.contains("OpenFlow error")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
