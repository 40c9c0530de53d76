//! An overlay with distributed routers: three hypervisors with an underlay between them, eight machines on each, four
//! networks. Tables of a pipeline as OVN has them: tracked access lists at both ends, ARP answered on the way, routing by
//! rewritten addresses, source translation towards one network.

use std::fmt::Write as _;

use testkit::{
    Daemon, DaemonSpec, Iperf3Options, Netns, RunDir, Running, require_netns, require_programs, veth,
    wait_for,
};

use crate::helpers::{LIMIT, SLUICED, appctl, require_userspace, unreachable, vsctl};

const HYPERVISORS: usize = 3;
const MACHINES: usize = 8;
const NETS: usize = 4;
/// The network whose visitors from the first one have a translated source.
const TRANSLATED: usize = 4;
/// Key of a tunnel for packets that the hypervisor is to translate back.
const BACK: usize = 1000;
/// OpenFlow numbers of tunnels, by the hypervisor at their end.
const TUNNELS: usize = 100;
/// Zone of translations.
const NAT_ZONE: usize = 900;
/// A port of TCP that no access list allows.
const CLOSED: u16 = 99;
/// Bytes of an inner packet that fit into an underlay of 1500 bytes.
const INNER_MTU: u32 = 1450;

/// A machine's place.
#[derive(Clone, Copy)]
struct Place {
    hypervisor: usize,
    number: usize,
}

impl Place {
    fn all() -> impl Iterator<Item = Place> {
        (0..HYPERVISORS * MACHINES).map(|n| Place { hypervisor: n / MACHINES, number: n % MACHINES })
    }

    /// Logical number, from 1.
    fn logical(self) -> usize {
        1 + self.hypervisor * MACHINES + self.number
    }

    fn net(self) -> usize {
        1 + self.number % NETS
    }

    fn ip(self) -> String {
        format!("10.{}.0.{}", self.net(), 10 * (1 + self.hypervisor) + self.number / NETS)
    }

    fn mac(self) -> String {
        format!("02:00:00:00:{:02x}:{:02x}", self.net(), self.logical())
    }

    /// OpenFlow number at its hypervisor.
    fn port(self) -> usize {
        1 + self.number
    }
}

fn gateway_mac(net: usize) -> String {
    format!("02:00:00:00:ff:{net:02x}")
}

/// The address that hides machines of a hypervisor.
fn hidden(hypervisor: usize) -> String {
    format!("10.{TRANSLATED}.0.{}", 251 + hypervisor)
}

/// An answer to ARP requests for an address.
fn arp(net: usize, ip: &str, mac: &str) -> String {
    let digits = mac.replace(':', "");
    format!(
        "table=1,arp,arp_op=1,metadata={net},arp_tpa={ip},actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],\
         mod_dl_src:{mac},load:2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
         load:0x{digits}->NXM_NX_ARP_SHA[],push:NXM_OF_ARP_TPA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
         pop:NXM_OF_ARP_SPA[],IN_PORT\n"
    )
}

/// The rules of a hypervisor.
fn rules(here: usize) -> String {
    let mut text = String::from(
        "table=1,priority=0,ip,actions=resubmit(,2)\n\
         table=3,priority=9,ct_state=+trk+est-inv,actions=resubmit(,4)\n\
         table=4,priority=0,actions=resubmit(,8)\n\
         table=6,priority=0,actions=resubmit(,7)\n\
         table=12,priority=0,actions=resubmit(,14)\n\
         table=13,priority=9,ct_state=+trk+est-inv,actions=resubmit(,14)\n",
    );
    for net in 1..=NETS {
        let gateway = gateway_mac(net);
        text += &arp(net, &format!("10.{net}.0.1"), &gateway);
        let _ = write!(
            text,
            "table=4,metadata={net},dl_dst={gateway},actions=load:{net}->NXM_NX_REG0[],resubmit(,5)\n\
             table=5,priority=10,ip,nw_dst=10.{net}.0.0/24,actions=dec_ttl,mod_dl_src:{gateway},load:{net}->OXM_OF_METADATA[],resubmit(,6)\n"
        );
    }
    let own = hidden(here);
    let _ = writeln!(
        text,
        "table=6,ip,reg0=1,metadata={TRANSLATED},actions=ct(commit,zone={NAT_ZONE},nat(src={own}),table=7)"
    );
    let _ = writeln!(text, "table=5,priority=20,ip,nw_dst={own},actions=ct(nat,zone={NAT_ZONE},table=5)");
    for other in 0..HYPERVISORS {
        let tunnel = TUNNELS + other;
        text += &arp(TRANSLATED, &hidden(other), &gateway_mac(TRANSLATED));
        if other != here {
            let _ = write!(
                text,
                "table=5,priority=20,ip,nw_dst={},actions=load:{}->NXM_NX_TUN_ID[],output:{tunnel}\n\
                 table=0,priority=9,in_port={tunnel},tun_id={},actions=load:{TRANSLATED}->NXM_NX_REG0[],resubmit(,5)\n\
                 table=0,priority=5,in_port={tunnel},actions=move:NXM_NX_TUN_ID[0..15]->NXM_NX_REG15[0..15],resubmit(,12)\n",
                hidden(other),
                BACK + other,
                BACK + here
            );
        }
    }
    for place in Place::all() {
        let (logical, net, ip, mac) = (place.logical(), place.net(), place.ip(), place.mac());
        text += &arp(net, &ip, &mac);
        let _ = write!(
            text,
            "table=7,ip,metadata={net},nw_dst={ip},actions=mod_dl_dst:{mac},resubmit(,8)\n\
             table=8,metadata={net},dl_dst={mac},actions=load:{logical}->NXM_NX_REG15[],resubmit(,12)\n"
        );
        if place.hypervisor == here {
            // A port has one zone for both directions, as in OVN.
            let port = place.port();
            let _ = write!(
                text,
                "table=0,in_port={port},dl_src={mac},actions=load:{logical}->NXM_NX_REG14[],load:{net}->OXM_OF_METADATA[],resubmit(,1)\n\
                 table=2,ip,reg14={logical},nw_src={ip},actions=ct(table=3,zone={logical})\n\
                 table=3,priority=5,ip,ct_state=+trk+new,reg14={logical},actions=ct(commit,zone={logical}),resubmit(,4)\n\
                 table=12,ip,reg15={logical},actions=ct(table=13,zone={logical})\n\
                 table=13,priority=7,ct_state=+trk+new,tcp,tp_dst={CLOSED},actions=drop\n\
                 table=13,priority=5,ip,ct_state=+trk+new,reg15={logical},actions=ct(commit,zone={logical}),resubmit(,14)\n\
                 table=14,reg15={logical},actions=output:{port}\n"
            );
        } else {
            let _ = writeln!(
                text,
                "table=14,reg15={logical},actions=load:{logical}->NXM_NX_TUN_ID[],output:{}",
                TUNNELS + place.hypervisor
            );
        }
    }
    text
}

struct Lab {
    // Ended before their namespaces.
    daemons: Vec<Daemon>,
    machines: Vec<(Place, Netns)>,
    _switches: Vec<Netns>,
    _underlay: Netns,
    _dirs: Vec<RunDir>,
}

impl Lab {
    fn new() -> Lab {
        let underlay = Netns::new("underlay").unwrap();
        underlay.ip("link add name joint type bridge mcast_snooping 0").unwrap();
        underlay.up("joint").unwrap();
        let mut lab = Lab {
            daemons: Vec::new(),
            machines: Vec::new(),
            _switches: Vec::new(),
            _underlay: underlay,
            _dirs: Vec::new(),
        };
        for here in 0..HYPERVISORS {
            lab.hypervisor(here);
        }
        lab
    }

    /// A machine of a hypervisor; returns its port.
    fn machine(&mut self, place: Place, switch: &Netns) -> String {
        let netns = Netns::new(&format!("m{}", place.logical())).unwrap();
        let (dev, port) = veth(&netns, switch).unwrap();
        netns.ip(&format!("link set dev {dev} address {} mtu {INNER_MTU}", place.mac())).unwrap();
        netns.up(&dev).unwrap();
        netns.add_addr(&dev, &format!("{}/24", place.ip())).unwrap();
        netns.ip(&format!("route add default via 10.{}.0.1", place.net())).unwrap();
        switch.up(&port).unwrap();
        self.machines.push((place, netns));
        port
    }

    fn hypervisor(&mut self, here: usize) {
        let switch = Netns::new(&format!("hv{here}")).unwrap();
        // Else the kernel answers for br-phy's address by the uplink too.
        switch.run("sysctl", &["-q", "-w", "net.ipv4.conf.all.arp_ignore=1"]).unwrap();
        let (uplink, end) = veth(&switch, &self._underlay).unwrap();
        self._underlay.ip(&format!("link set dev {end} master joint up")).unwrap();
        switch.up(&uplink).unwrap();
        let dir = RunDir::new("hv").unwrap();
        let spec = DaemonSpec::new(SLUICED).unwrap().netns(&switch).rundir(&dir);
        let mut args = vec!["--pidfile", "--log-file", "-vconsole:off", "--disable-system"];
        // The second one tries masks in the order in which they were made.
        if here == 1 {
            args.push("--without=ranking");
        }
        let daemon = spec.args(args).start().unwrap();
        let mut line = format!(
            "set Open_vSwitch . other_config:emc-insert-inv-prob=0 \
             -- add-br br-phy -- set Bridge br-phy datapath_type=netdev -- add-port br-phy {uplink} \
             -- add-br br-int -- set Bridge br-int datapath_type=netdev fail-mode=secure"
        );
        for place in Place::all().filter(|place| place.hypervisor == here) {
            let port = self.machine(place, &switch);
            let _ = write!(
                line,
                " -- add-port br-int {port} -- set Interface {port} ofport_request={}",
                place.port()
            );
        }
        for other in (0..HYPERVISORS).filter(|other| *other != here) {
            let _ = write!(
                line,
                " -- add-port br-int t{other} -- set Interface t{other} type=vxlan ofport_request={} \
                 options:key=flow options:remote_ip=172.16.0.{}",
                TUNNELS + other,
                1 + other
            );
        }
        vsctl(&daemon, &line);
        wait_for(LIMIT, "the device of br-phy", || switch.ip("link show dev br-phy").is_ok()).unwrap();
        switch.up("br-phy").unwrap();
        switch.add_addr("br-phy", &format!("172.16.0.{}/24", 1 + here)).unwrap();
        daemon.tool("ovs-ofctl").args(["add-flows", "br-int", "-"]).input(rules(here)).run().unwrap();
        self.daemons.push(daemon);
        self._switches.push(switch);
        self._dirs.push(dir);
    }

    fn at(&self, logical: usize) -> (&Place, &Netns) {
        let (place, netns) = &self.machines[logical - 1];
        (place, netns)
    }

    /// Pings between all pairs at the same time; each must be answered.
    fn ping_all_pairs(&self, count: usize) {
        let ask = |(from, netns): &(Place, Netns)| -> (usize, Running) {
            let others: Vec<String> =
                Place::all().filter(|to| to.logical() != from.logical()).map(Place::ip).collect();
            let script = format!(
                "for ip in {}; do ping -n -q -i 0.2 -c {count} -w 30 $ip & done; wait",
                others.join(" ")
            );
            (others.len(), netns.spawn("sh", &["-c", &script]).unwrap())
        };
        let running: Vec<_> = self.machines.iter().map(ask).collect();
        for ((place, _), (others, shell)) in self.machines.iter().zip(running) {
            let out = shell.wait(LIMIT * 6).unwrap().stdout;
            // With -w, ping sends until `count` replies came; more may come at once.
            let received =
                out.lines().filter_map(|l| l.split(", ").find_map(|p| p.strip_suffix(" received")));
            let answered = received.filter(|n| n.parse::<usize>().is_ok_and(|n| n >= count)).count();
            assert_eq!(answered, others, "from {}: {out}", place.ip());
        }
    }
}

/// Subtables that the threads of a daemon look into for a packet, on average.
fn lookups(daemon: &Daemon) -> f64 {
    let text = appctl(daemon, "dpif-netdev/pmd-stats-show");
    let values =
        text.lines().filter_map(|l| l.trim().strip_prefix("avg. subtable lookups per megaflow hit: "));
    values.filter_map(|v| v.parse::<f64>().ok()).fold(0.0, f64::max)
}

#[test]
fn three_hypervisors_route_an_overlay() {
    require_netns!();
    require_userspace!("tunnels of the userspace datapath");
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "iperf3", "ping");
    let lab = Lab::new();
    lab.ping_all_pairs(3);
    // All megaflows exist now: the same again counts what they cost.
    for daemon in &lab.daemons {
        appctl(daemon, "dpif-netdev/pmd-stats-clear");
    }
    lab.ping_all_pairs(5);
    let found: Vec<f64> = lab.daemons.iter().map(lookups).collect();
    println!(
        "subtables for a packet: ranked {:.2}, by order {:.2}, ranked {:.2}",
        found[0], found[1], found[2]
    );
    assert!(found.iter().all(|n| *n >= 1.0), "{found:?}");
    assert!(found[0].min(found[2]) < found[1], "ranking helps: {found:?}");
    // Routed across, and within one network.
    for (from, to) in [(1, MACHINES + 2), (1, 2 * MACHINES + 1)] {
        let (place, server) = lab.at(to);
        let _server = testkit::iperf3_server(server, 5201).unwrap();
        let options = Iperf3Options { bytes: Some(16 << 20), ..Iperf3Options::default() };
        let address = place.ip().parse().unwrap();
        let report = testkit::iperf3_client(lab.at(from).1, address, &options).unwrap();
        println!("{}: {:.0} Mbit/s", place.ip(), report.received_bps / 1e6);
        assert!(report.received_bps > 1e6, "{report:?}");
        let closed = format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{}/{CLOSED}'", place.ip());
        let refused = lab.at(from).1.cmd("bash").args(["-c", &closed]).output().unwrap();
        assert_eq!(refused.status.code(), Some(124), "silently dropped: {refused:?}");
    }
    // From the first network into the last one, sources are hidden; from the second, they are not.
    let (target, netns) = lab.at(MACHINES + NETS);
    let seen = testkit::Capture::start(netns, "any", "icmp[0] == 8", &[]).unwrap();
    for from in [1, 2] {
        testkit::reachable(lab.at(from).1, target.ip().parse().unwrap(), LIMIT).unwrap();
    }
    for source in [hidden(0), lab.at(2).0.ip()] {
        seen.wait_for(&format!(" {source} > "), LIMIT).unwrap();
    }
    let lines = seen.stop().unwrap().join("\n");
    assert!(lines.contains(&format!(" {} > ", hidden(0))) && lines.contains(&lab.at(2).0.ip()), "{lines}");
    assert!(!lines.contains(&lab.at(1).0.ip()), "{lines}");
    let connections = appctl(&lab.daemons[0], &format!("dpctl/dump-conntrack zone={NAT_ZONE}"));
    assert!(connections.contains(&hidden(0)), "{connections}");
    // Routers decrement the hop limit: one hop does not reach the other network.
    let late = lab.at(1).1.cmd("ping").args(["-n", "-c2", "-W1", "-t1", &lab.at(2).0.ip()]).output().unwrap();
    assert!(late.stdout.contains(" 0 received"), "{late:?}");
    unreachable(lab.at(1).1, [10, 3, 0, 77].into());
    for daemon in &lab.daemons {
        let lost = appctl(daemon, "coverage/show");
        assert!(!lost.contains("datapath_drop_tunnel"), "{lost}");
    }
}
