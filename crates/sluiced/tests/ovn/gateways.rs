//! Gateways, address translation, provider networks.

use testkit::{Capture, wait_for};

use crate::lab::{Kind, LIMIT, Lab, Machine, encapsulates};
use crate::sockets::{ask, connect, serve, transfer};

/// Address of the outsider.
const OUTSIDER: &str = "172.30.0.50";

/// A logical switch `public` on the physical network.
const PUBLIC: &str = "ls-add public -- lsp-add public ln -- lsp-set-type ln localnet \
                      -- lsp-set-addresses ln unknown -- lsp-set-options ln network_name=phys";

/// Connects a router to it, with 172.30.0.1.
fn publish(lab: &Lab, router: &str) {
    lab.nb(&format!(
        "{PUBLIC} -- lrp-add {router} r-public 0a:00:00:00:30:01 172.30.0.1/24 -- lsp-add public public-r \
         -- lsp-set-type public-r router -- lsp-set-addresses public-r router \
         -- lsp-set-options public-r router-port=r-public"
    ));
}

/// Two machines on two chassis behind a distributed router with its gateway on the first, and a machine outside.
fn distributed(kind: Kind) -> (Lab, [Machine; 2], Machine) {
    let mut lab = Lab::new(kind, 2);
    lab.provider();
    lab.network(1);
    publish(&lab, "r");
    lab.nb("lrp-set-gateway-chassis r-public hv1 20 -- lr-nat-add r snat 172.30.0.1 10.1.0.0/24");
    let machines = [lab.machine(0, 1, 11), lab.machine(1, 1, 12)];
    let outsider = lab.outsider(50, &format!("{OUTSIDER}/24"));
    lab.sync();
    for machine in &machines {
        machine.reaches(OUTSIDER);
    }
    (lab, machines, outsider)
}

/// Addresses of senders in the lines of a capture of ICMP requests.
fn senders(lines: &[String]) -> Vec<&str> {
    lines.iter().filter(|l| l.contains("echo request")).filter_map(|l| l.split(' ').nth(1)).collect()
}

pub(crate) fn floating_addresses(kind: Kind) {
    let (lab, [inner, floating], outsider) = distributed(kind);
    lab.apply(
        "lr-nat-add r dnat_and_snat 172.30.0.112 10.1.0.12 n1h12 0a:00:00:00:30:12 \
         -- lr-nat-add r dnat_and_snat 172.30.0.111 10.1.0.11",
    );
    let _servers =
        [serve(&inner, 80, "inner"), serve(&floating, 80, "floating"), serve(&outsider, 80, "outsider")];
    for (machine, address, name) in
        [(&floating, "172.30.0.112", "floating"), (&inner, "172.30.0.111", "inner")]
    {
        outsider.reaches(address);
        assert_eq!(connect(&outsider, address, 80).as_deref(), Ok(name));
        transfer(&outsider, address, 80, name);
        let capture = Capture::start(&outsider.netns, &outsider.dev, "icmp", &[]).unwrap();
        machine.reaches(OUTSIDER);
        let lines = capture.stop().unwrap();
        assert!(senders(&lines).contains(&address), "{lines:?}");
        assert_eq!(connect(machine, OUTSIDER, 80).as_deref(), Ok("outsider"));
        assert_eq!(ask(machine, OUTSIDER, 80, b"?").as_deref(), Ok(&b"outsider"[..]));
    }
    // The distributed one leaves its own chassis with its own Ethernet address.
    let known = outsider.netns.ip("neigh show 172.30.0.112").unwrap();
    assert!(known.contains("0a:00:00:00:30:12"), "{known}");
    // Both by their floating addresses, within the router.
    wait_for(LIMIT, "a floating address from within", || connect(&inner, "172.30.0.112", 80).is_ok())
        .unwrap();
}

pub(crate) fn gateway_routers(kind: Kind) {
    let mut lab = Lab::new(kind, 2);
    lab.provider();
    lab.network(1);
    lab.nb("lr-add gw -- set Logical_Router gw options:chassis=hv2");
    publish(&lab, "gw");
    lab.nb("ls-add join -- lrp-add r r-join 0a:00:00:00:40:01 100.64.0.1/24 \
         -- lsp-add join join-r -- lsp-set-type join-r router -- lsp-set-addresses join-r router \
         -- lsp-set-options join-r router-port=r-join \
         -- lrp-add gw gw-join 0a:00:00:00:40:02 100.64.0.2/24 \
         -- lsp-add join join-gw -- lsp-set-type join-gw router -- lsp-set-addresses join-gw router \
         -- lsp-set-options join-gw router-port=gw-join \
         -- lr-route-add r 0.0.0.0/0 100.64.0.2 -- lr-route-add gw 10.1.0.0/16 100.64.0.1 \
         -- lr-nat-add gw snat 172.30.0.1 10.1.0.0/16 -- lr-nat-add gw dnat 172.30.0.80 10.1.0.11");
    lab.nb("lb-add web 172.30.0.90:80 10.1.0.11:8080,10.1.0.12:8080 tcp -- lr-lb-add gw web \
         -- set Logical_Router gw options:lb_force_snat_ip=router_ip");
    let (one, two) = (lab.machine(0, 1, 11), lab.machine(1, 1, 12));
    let outsider = lab.outsider(50, &format!("{OUTSIDER}/24"));
    lab.sync();
    let _servers = [
        serve(&one, 80, "one"),
        serve(&one, 8080, "one"),
        serve(&two, 8080, "two"),
        serve(&outsider, 80, "outsider"),
    ];
    for machine in [&one, &two] {
        machine.reaches(OUTSIDER);
        let capture = Capture::start(&outsider.netns, &outsider.dev, "icmp", &[]).unwrap();
        machine.reaches(OUTSIDER);
        let lines = capture.stop().unwrap();
        assert!(
            !senders(&lines).is_empty() && senders(&lines).iter().all(|s| *s == "172.30.0.1"),
            "{lines:?}"
        );
        assert_eq!(connect(machine, OUTSIDER, 80).as_deref(), Ok("outsider"));
    }
    // An error from outside finds the machine behind the translation.
    assert_eq!(ask(&one, OUTSIDER, 9, b"?"), Err(std::io::ErrorKind::ConnectionRefused));
    outsider.reaches("172.30.0.80");
    assert_eq!(connect(&outsider, "172.30.0.80", 80).as_deref(), Ok("one"));
    wait_for(LIMIT, "the balancer", || connect(&outsider, "172.30.0.90", 80).is_ok()).unwrap();
    let met: std::collections::BTreeSet<_> =
        (0..40).map(|_| connect(&outsider, "172.30.0.90", 80).unwrap()).collect();
    assert_eq!(met.len(), 2, "{met:?}");
}

/// Packets too long for a port of a gateway router, in both directions and of several flows: each sender learns the length.
pub(crate) fn too_long_for_gateways(kind: Kind) {
    let mut lab = Lab::new(kind, 2);
    lab.provider();
    lab.network(1);
    lab.nb("lr-add gw -- set Logical_Router gw options:chassis=hv2");
    lab.nb(&format!(
        "{PUBLIC} -- lrp-add gw gw-public 0a:00:00:00:30:01 172.30.0.1/24 fd30::1/64 \
         -- lsp-add public public-gw -- lsp-set-type public-gw router -- lsp-set-addresses public-gw router \
         -- lsp-set-options public-gw router-port=gw-public \
         -- ls-add join -- lrp-add r r-join 0a:00:00:00:40:01 100.64.0.1/24 fd64::1/64 \
         -- lsp-add join join-r -- lsp-set-type join-r router -- lsp-set-addresses join-r router \
         -- lsp-set-options join-r router-port=r-join \
         -- lrp-add gw gw-join 0a:00:00:00:40:02 100.64.0.2/24 fd64::2/64 \
         -- lsp-add join join-gw -- lsp-set-type join-gw router -- lsp-set-addresses join-gw router \
         -- lsp-set-options join-gw router-port=gw-join \
         -- lr-route-add r 0.0.0.0/0 100.64.0.2 -- lr-route-add gw 10.1.0.0/16 100.64.0.1 \
         -- lr-route-add r ::/0 fd64::2 -- lr-route-add gw fd01::/64 fd64::1 \
         -- set Logical_Router_Port gw-public options:gateway_mtu=1340 \
         -- set Logical_Router_Port gw-join options:gateway_mtu=1320"
    ));
    let machines = [lab.machine(0, 1, 11), lab.machine(1, 1, 12)];
    let outsider = lab.outsider(50, &format!("{OUTSIDER}/24"));
    outsider.netns.add_addr(&outsider.dev, "fd30::50/64").unwrap();
    outsider.netns.ip("route add default via 172.30.0.1").unwrap();
    outsider.netns.ip("-6 route add default via fd30::1").unwrap();
    lab.sync();
    for machine in &machines {
        machine.reaches(OUTSIDER);
        machine.reaches("fd30::50");
    }
    let learns = |from: &Machine, to: &str, mtu: &str| {
        wait_for(LIMIT, &format!("{mtu} from {} to {to}", from.ip), || {
            let _unanswered = from.netns.run("ping", &["-c1", "-W1", "-Mdo", "-s1345", to]);
            from.netns.ip(&format!("route get {to}")).unwrap().contains(&format!("mtu {mtu}"))
        })
        .unwrap();
    };
    for machine in &machines {
        for to in [OUTSIDER, "fd30::50"] {
            learns(machine, to, "1320");
        }
        for to in [&machine.ip, &machine.ip6] {
            learns(&outsider, to, "1340");
        }
    }
}

pub(crate) fn provider_networks(kind: Kind) {
    let mut lab = Lab::new(kind, 2);
    lab.provider();
    lab.network(1);
    lab.nb("lsp-add n1 ln1 -- lsp-set-type ln1 localnet -- lsp-set-addresses ln1 unknown \
         -- lsp-set-options ln1 network_name=phys -- set Logical_Switch_Port ln1 tag=100");
    let (near, far) = (lab.machine(0, 1, 11), lab.machine(1, 1, 12));
    lab.sync();
    let chassis = &lab.chassis[0];
    let ports = chassis.vsctl("list-ports br-ex");
    let uplink = ports.lines().find(|port| !port.starts_with("patch-")).unwrap();
    let capture = Capture::start(&chassis.netns, uplink, "vlan 100 and icmp", &["-e"]).unwrap();
    near.reaches(&far.ip);
    capture.wait_for("vlan 100", LIMIT).unwrap();
    capture.wait_for("echo request", LIMIT).unwrap();
    let _server = serve(&far, 80, "far");
    near.reaches(&far.ip);
    assert_eq!(connect(&near, &far.ip, 80).as_deref(), Ok("far"));
    transfer(&near, &far.ip, 80, "far");
    // Machines of such a network meet on it, not by a tunnel.
    let flows = lab.chassis[0].appctl("dpctl/dump-flows");
    assert!(flows.contains("push_vlan(vid=100,pcp=0)") && !encapsulates(&flows), "{flows}");
}

pub(crate) fn learned_neighbours(kind: Kind) {
    let (lab, [inner, _], outsider) = distributed(kind);
    let bindings = || lab.sb("--bare --columns=ip,mac find MAC_Binding logical_port=r-public");
    assert!(bindings().contains(&outsider.mac), "{}", bindings());
    lab.nb("set Logical_Router r options:mac_binding_age_threshold=3");
    wait_for(LIMIT, "the binding to age", || bindings().is_empty()).unwrap();
    // A new one is learned by the next packet, and the changed address of the outsider by its announcement.
    inner.reaches(OUTSIDER);
    lab.nb("set Logical_Router r options:mac_binding_age_threshold=0");
    wait_for(LIMIT, "the binding", || {
        inner.can_ping(OUTSIDER);
        bindings().contains(&outsider.mac)
    })
    .unwrap();
    let (netns, dev) = (&outsider.netns, &outsider.dev);
    netns.ip(&format!("link set dev {dev} address 0a:00:00:00:99:77")).unwrap();
    netns.ip("neigh flush all").unwrap();
    wait_for(LIMIT, "the new address", || {
        // Its request tells the router.
        let _answered = outsider.can_ping("172.30.0.1");
        bindings().contains("0a:00:00:00:99:77")
    })
    .unwrap();
    inner.reaches(OUTSIDER);
}

/// BFD between chassis decides which gateway is alive; the other one takes over, and gives back.
pub(crate) fn failover(kind: Kind) {
    let mut lab = Lab::new(kind, 3);
    lab.provider();
    lab.network(1);
    publish(&lab, "r");
    lab.nb("lrp-set-gateway-chassis r-public hv1 20 -- lrp-set-gateway-chassis r-public hv2 10 \
         -- lr-nat-add r snat 172.30.0.1 10.1.0.0/24");
    let machine = lab.machine(2, 1, 11);
    let outsider = lab.outsider(50, &format!("{OUTSIDER}/24"));
    lab.sync();
    machine.reaches(OUTSIDER);
    let state = |lab: &Lab, peer: &str| {
        lab.chassis[2].vsctl(&format!("--if-exists get Interface ovn-{peer}-0 bfd_status:state"))
    };
    for peer in ["hv1", "hv2"] {
        wait_for(LIMIT, &format!("the session with {peer}"), || state(&lab, peer) == "up").unwrap();
    }
    let chassis = |lab: &Lab, name: &str| lab.sb(&format!("--bare --columns=_uuid find Chassis name={name}"));
    let bound = |lab: &Lab| lab.sb("--bare --columns=chassis find Port_Binding logical_port=cr-r-public");
    let [first, second] = ["hv1", "hv2"].map(|name| chassis(&lab, name));
    wait_for(LIMIT, "the first gateway", || bound(&lab) == first).unwrap();
    lab.chassis[0].halt();
    wait_for(LIMIT, "the end of the session", || state(&lab, "hv1") == "down").unwrap();
    wait_for(LIMIT, "the second gateway", || bound(&lab) == second).unwrap();
    machine.reaches(OUTSIDER);
    let _server = serve(&outsider, 80, "outsider");
    assert_eq!(connect(&machine, OUTSIDER, 80).as_deref(), Ok("outsider"));
    let flows = lab.chassis[1].appctl("dpctl/dump-flows");
    assert!(flows.contains("172.30.0.1"), "{flows}");
    lab.chassis[0].revive(1);
    wait_for(LIMIT, "the session with hv1", || state(&lab, "hv1") == "up").unwrap();
    wait_for(LIMIT, "the first gateway again", || bound(&lab) == first).unwrap();
    machine.reaches(OUTSIDER);
    assert_eq!(connect(&machine, OUTSIDER, 80).as_deref(), Ok("outsider"));
}
