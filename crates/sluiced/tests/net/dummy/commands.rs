//! Control commands, compared with a stock switch with the same ports and flows.

use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, appctl_output, vsctl};
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use testkit::{Daemon, DaemonSpec, RunDir, TempDir, require_netns, require_programs, wait_for};

/// The stock switch.
pub(super) struct Stock {
    dir: RunDir,
    _daemons: Vec<Daemon>,
}

const SET_UP: &str = "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure \
    -- add-port br0 p1 -- set Interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set Interface p2 type=dummy ofport_request=2 \
    -- add-port br0 p7 tag=10 -- set Interface p7 type=dummy ofport_request=7 \
    -- add-port br0 pa -- set Interface pa type=patch options:peer=pb ofport_request=3 \
    -- add-br br1 -- set Bridge br1 datapath_type=dummy fail_mode=secure \
    -- add-port br1 pb -- set Interface pb type=patch options:peer=pa ofport_request=1";

impl Stock {
    fn start() -> Stock {
        let stock = Stock::empty();
        stock.vsctl(SET_UP);
        stock
    }

    pub(super) fn vsctl(&self, line: &str) {
        self.dir.ovs("ovs-vsctl", &line.split_whitespace().collect::<Vec<_>>()).unwrap();
    }

    /// Without bridges.
    pub(super) fn empty() -> Stock {
        let dir = RunDir::new("stock").unwrap();
        let spec = |program: &Path| Ok(DaemonSpec::new(program)?.rundir(&dir));
        let daemons = testkit::start_stock(
            spec,
            "ovs-vswitchd",
            &[],
            [&[], &["--enable-dummy", "--pidfile", "--log-file"]],
        )
        .unwrap();
        Stock { dir, _daemons: daemons }
    }

    pub(super) fn appctl(&self, line: &str) -> String {
        let out = self.dir.tool("ovs-appctl", None).args(line.split_whitespace()).output().unwrap();
        normal(line, &out.stdout, &out.stderr)
    }
}

/// Output that must be equal: without ages, random names and hash-table order.
fn normal(command: &str, stdout: &str, stderr: &str) -> String {
    let stderr = stderr.lines().filter(|l| !l.contains("server returned an error"));
    // OVS 3.1 has no counters of upcalls by port.
    let lines = stdout.lines().chain(stderr).filter(|l| !l.starts_with("    UPCALL packets:"));
    let mut lines: Vec<String> = lines.map(normal_line).collect();
    if command.contains("dump-flows") || command.contains("fdb/show") {
        lines.sort();
    }
    lines.join("\n")
}

fn normal_line(line: &str) -> String {
    if let Some(ports) = line.strip_prefix("Datapath actions: ").filter(|p| p.bytes().all(|b| b != b'(')) {
        let mut ports: Vec<&str> = ports.split(',').collect();
        ports.sort_unstable();
        return format!("Datapath actions: {}", ports.join(","));
    }
    let mut out = line.to_string();
    for (start, end) in [
        ("used:", ","),
        ("ufid:", " "),
        ("recirc(0x", ")"),
        ("recirc_id=", ",rule"),
        (", dp-extra-info:", ""),
    ] {
        if let Some((head, rest)) = out.clone().split_once(start) {
            let tail = if end.is_empty() { "" } else { rest.find(end).map_or("", |at| &rest[at..]) };
            out = format!("{head}{start}{tail}");
        }
    }
    // An age in seconds in the MAC table.
    let words: Vec<&str> = out.split_whitespace().collect();
    match words[..] {
        [port, vlan, mac, age] if mac.len() == 17 && age.parse::<u32>().is_ok() => {
            format!("{port} {vlan} {mac}")
        }
        _ => out,
    }
}

/// Commands with equal answers; each relies on the state left by earlier ones.
const ALIKE: &str = "\
dpif/show
fdb/add br0 p1 0 50:54:00:00:00:05
fdb/add br0 p1 0 50:54:00:00:00:05
fdb/add br0 p2 0 50:54:00:00:00:05
fdb/add br0 p1 5 50:54:00:00:00:06
fdb/add nobr p1 5 50:54:00:00:00:06
fdb/add br0 p1 0 50:54:00:00:00
fdb/add br0 br0 0 02:54:00:00:00:05
fdb/add br0 p1
fdb/show br0
fdb/del br0 0 50:54:00:00:00:05
fdb/del br0 0 50:54:00:00:00:05
fdb/del br0 0 50:54
fdb/del nobr 0 50:54:00:00:00:05
fdb/show nobr
fdb/stats-clear br0
fdb/stats-clear nobr
fdb/stats-clear
fdb/flush br0
fdb/flush nobr
fdb/show br0
fdb/stats-show br0
mdb/show br0
mdb/show nobr
mdb/flush
mdb/flush br0
bond/list
bond/show
bond/show nob
bond/migrate a b c
bond/set-active-member a b
bond/enable-member a b
bond/disable-member a b
lacp/show
lacp/show nop
lacp/show-stats
lacp/show-stats nop
cfm/show
cfm/show p1
bfd/show
bfd/show nop
stp/show
stp/show br0
rstp/show
rstp/show br0
qos/show p1
qos/show nop
qos/show-types p1
qos/show-types nop
bridge/reconnect
bridge/reconnect br0
bridge/reconnect nobr
ofproto/list-tunnels
tnl/ports/show
tnl/ports/show -v
tnl/neigh/show
tnl/arp/show
dpif/dump-dps
dpctl/dump-dps
dpctl/cache-get-size
dpctl/cache-set-size dummy@ovs-dummy emc 5
dpctl/dump-conntrack
dpctl/dump-conntrack zone=5
dpctl/dump-conntrack -m -s
dpctl/flush-conntrack
dpctl/ct-stats-show
dpctl/ct-get-nconns
dpctl/set-if dummy@ovs-dummy p1,type=dummy
dpctl/set-if dummy@ovs-dummy p1,type=system
dpctl/set-if dummy@ovs-dummy p1,port_no=3
upcall/enable-ufid
upcall/set-flow-limit 2000
netdev-dummy/receive p1 in_port(1),FORTH,eth_type(0x0800),ipv4(src=1.0.0.1,dst=1.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)
netdev-dummy/receive p2 in_port(2),BACK,eth_type(0x0806),arp(sip=1.0.0.1,tip=1.0.0.2,op=1,sha=50:54:00:00:00:07,tha=00:00:00:00:00:00)
netdev-dummy/receive p1 in_port(1),FORTH,eth_type(0x0800),ipv4(src=1.0.0.1,dst=1.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=2),tcp_flags(syn)
dpctl/dump-flows
dpctl/dump-flows dummy@ovs-dummy
dpctl/dump-flows --names
dpctl/dump-flows pmd=0
dpctl/dump-flows pmd=-1
dpctl/dump-flows type=ovs
dpctl/dump-flows type=tc
dpctl/dump-flows type=ovs,tc
dpctl/dump-flows type=non-offloaded
dpctl/dump-flows type=offloaded
dpctl/dump-flows type=partially-offloaded
dpctl/dump-flows type=ovs,bogus
dpctl/offload-stats-show
dpctl/dump-flows filter=icmp
dpctl/dump-flows filter=arp
dpctl/dump-flows filter=in_port=1
dpctl/dump-flows filter=in_port=p1
dpctl/dump-flows filter=ip,nw_src=1.2.3.4
dpctl/dump-flows filter=icmp pmd=-1
dpctl/dump-flows -z
dpif/dump-flows br0
dpif/dump-flows --names br0
dpif/dump-flows br1
dpif/dump-flows nobr
dpctl/show -s
revalidator/wait
fdb/flush
ofproto/trace br0 in_port=1
ofproto/trace br0 in_port=1 -generate
ofproto/trace br0 -generate in_port=1
ofproto/trace br0 in_port=1,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02 -generate
ofproto/trace br0 in_port=1,dl_src=02:00:00:00:00:05,dl_dst=02:00:00:00:00:02
fdb/show br0
ofproto/trace br0 in_port=1 0102
ofproto/trace br0 in_port=1 02000000000202000000000708060001080006040001020000000007
ofproto/trace br0 in_port=1 zz
ofproto/trace nobr in_port=1
ofproto/trace br0 bogus=1
ofproto/trace br0 in_port=77
ofproto/trace br0 in_port=nop
ofproto/trace in_port(1),FORTH,eth_type(0x0806)
ofproto/trace ovs-dummy in_port(1),FORTH,eth_type(0x0806)
ofproto/trace ovs-dummy in_port(77),FORTH,eth_type(0x0806)
ofproto/trace ovs-dummy in_port(1),FORTH,eth_type(0x0806) -generate
ofproto/trace ovs-dummy in_port(1),FORTH,eth_type(0x0806) 02000000000202000000000708060001080006040001020000000007
ofproto/trace br0 in_port=1 -consistent
ofproto/trace br0 in_port=1 --l7
ofproto/trace br0 in_port=1 --l7-len
ofproto/trace br0 in_port=1 --l7-len 70000
ofproto/trace br0 in_port=1 --l7 zz
ofproto/trace br0 in_port=1 --l7 0102 -generate
ofproto/trace br0 in_port=1 --l7-len 10 0102030405060708090a0b0c0d0e
ofproto/trace br0 in_port=1 --foo
ofproto/trace br0 in_port=1 a b c
ofproto/trace br0 dl_src=02:00:00:00:00:21,dl_dst=02:00:00:00:00:22
ofproto/trace br0 in_port=controller,dl_src=02:00:00:00:00:21,dl_dst=02:00:00:00:00:22 -generate
ofproto/trace br0 in_port=7,dl_src=02:00:00:00:00:21,dl_dst=02:00:00:00:00:22,dl_vlan=5
ofproto/trace br0 in_port=1,dl_src=02:00:00:00:00:0b,dl_dst=01:80:c2:00:00:00
ofproto/trace br0 in_port=1,dl_src=02:00:00:00:00:0b,dl_dst=ff:ff:ff:ff:ff:ff
ofproto/trace br0 recirc_id=55,tcp,in_port=1
ofproto/trace-packet-out br0 in_port=1 output:2
ofproto/trace-packet-out br0 in_port=1 -generate output:2
ofproto/trace-packet-out -consistent br0 in_port=1 -generate output:2
ofproto/trace-packet-out br0 in_port=1 resubmit,2
ofproto/trace-packet-out br0 in_port=1 resubmit(,0)
ofproto/trace-packet-out br0 in_port=controller output:1,TABLE
ofproto/trace-packet-out br0 in_port=1 bogus
ofproto/trace-packet-out br0 in_port=1 normal
ofproto/trace-packet-out nobr in_port=1 2
ofproto/trace-packet-out br0 in_port=1 -generate set_field:5->reg0,2
ofproto/trace-packet-out in_port(1),FORTH,eth_type(0x0806) 2
ofproto/trace-packet-out ovs-dummy in_port(1),FORTH,eth_type(0x0806) 2
ofproto/trace-packet-out br0 in_port=1 mod_nw_tos:4,2
ofproto/trace-packet-out -consistent br0 in_port=1 mod_nw_tos:4,2
ofproto/trace-packet-out br0 in_port=1 output:1
ofproto/trace-packet-out br0 in_port=1 output:99
ofproto/trace-packet-out br0 in_port=1 all
ofproto/trace-packet-out br0 in_port=1,ip,nw_ttl=1 pop:NXM_NX_REG0[],output:2
ofproto/trace-packet-out br0 in_port=1,ip output:2,output:reg0[]
ofproto/trace-packet-out br0 in_port=1,tcp write_metadata:5,goto_table:3
ofproto/trace-packet-out br0 in_port=1,tcp write_actions(output:2)
ofproto/trace-packet-out br0 in_port=1,tcp resubmit(1,5),resubmit(99),in_port
ofproto/trace-packet-out br0 in_port=1,tcp flood
ofproto/trace-packet-out br0 in_port=1,tcp move:eth_src[]->eth_dst[],set_field:1.1.1.1->ip_dst,push_vlan:0x8100,set_field:4097->vlan_vid,output:2
ofproto/trace-packet-out br0 in_port=1,tcp move:in_port[]->reg1[0..15],output:reg1
ofproto/trace-packet-out br0 in_port=1,tcp push:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[],output:2
ofproto/trace-packet-out br0 in_port=1,tcp meter:1,output:2
ofproto/trace-packet-out br0 in_port=1,tcp learn(table=1,cookie=5,idle_timeout=6,priority=8,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:2
ofproto/trace-packet-out br0 in_port=1,tcp -generate learn(table=1,cookie=5,hard_timeout=7,send_flow_rem,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:5->NXM_NX_REG0[]),output:2
ofproto/trace-packet-out br0 in_port=1,tcp debug_recirc,output:2
ofproto/trace-packet-out br0 in_port=1,tcp output:3
ofproto/trace-packet-out br0 in_port=1,tcp set_field:5->tcp_dst
ofproto/trace-packet-out br0 in_port=1,tcp load:5->NXM_OF_UDP_DST[],output:2
ofproto/trace br0 in_port=1,tcp --names
ofproto/trace br0 in_port=p1,dl_src=02:00:00:00:00:0b,dl_dst=ff:ff:ff:ff:ff:ff --names
ofproto/trace ovs-dummy in_port(p1),FORTH,eth_type(0x0806) --names
ofproto/trace-packet-out --names br0 in_port=1,tcp output:3,resubmit(2,0),resubmit(,5)
ofproto/trace-packet-out --consistent br0 in_port=1 mod_tp_dst:5
ofproto/trace-packet-out br0 in_port=1 mod_tp_dst:5
ofproto/trace-packet-out br0 in_port=1 goto_table:3
ofproto/trace -generate
ofproto/trace br0 in_port=1 02000000000202000000000708060001080006040001020000000007 -generate
autoattach/show-isid
autoattach/statistics br0
autoattach/status nobr
bfd/set-forwarding true
bfd/set-forwarding p1 true
bfd/set-forwarding p1 zz
cfm/set-fault normal
cfm/set-fault p1 true
cfm/set-fault zz
stp/tcn
stp/tcn br0
rstp/tcn
rstp/tcn nobr
dpif-netdev/bond-show
dpif-netdev/dpif-impl-get
dpif-netdev/dpif-impl-set dpif_scalar
dpif-netdev/dpif-impl-set x
dpif-netdev/miniflow-parser-set scalar
dpif-netdev/miniflow-parser-set x
dpif-netdev/miniflow-parser-set -pmd
dpif-netdev/miniflow-parser-set -pmd 1 scalar
dpif-netdev/subtable-lookup-prio-set generic 1
dpif-netdev/subtable-lookup-prio-set zz 1
dpif-netdev/subtable-lookup-prio-set generic 999
odp-execute/action-impl-set scalar
odp-execute/action-impl-set zz
dpif/set-dp-features br0 recirc
dpif/set-dp-features br0 zz false
dpif/set-dp-features br0 recirc maybe
dpif/set-dp-features br0 max_hash_alg x
dpif/set-dp-features br0 max_hash_alg -1
dpif/set-dp-features br0 max_hash_alg 99
dpif/set-dp-features br0 trunc FALSE
dpif/set-dp-features br0 trunc
dpif/set-dp-features br0 trunc true
dpif/set-dp-features nobr
dpctl/parse-actions 1,2
dpctl/normalize-actions
dpctl/dump-flows filter=in_port(1),tcp
dpctl/dump-flows filter=in_port(90),tcp
dpctl/dump-flows filter=in_port(p1)
upcall/disable-ufid
upcall/enable-ufid
revalidator/pause
dpctl/del-flows
dpctl/add-flows FILE
dpctl/add-flows /nope
dpctl/mod-flow -s KEY 1
dpctl/mod-flow --clear KEY 1
dpctl/mod-flow KEX 1
dpctl/mod-flow --may-create KEX 1
dpctl/add-flow KEX 2
dpctl/add-flow -x KEX 2
dpctl/del-flow -s KEX
dpctl/del-flow KEX
dpctl/get-flow ufid:00000000-0000-0000-0000-000000000001
dpctl/get-flow ufid:zz
dpctl/add-flow ufid:00000000-0000-0000-0000-000000000001,KEX 2
dpctl/del-flow -s ufid:00000000-0000-0000-0000-000000000001
dpctl/del-flow ufid:00000000-0000-0000-0000-000000000001
dpctl/mod-flows FILE
dpctl/del-flows FILE
dpctl/del-flows /nope
dpctl/del-flows
revalidator/resume
bogus/command";

/// Flows by hand, for [`ALIKE`].
const KEY: &str = "in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x1234)";
const KEX: &str = "in_port(2),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x1234)";

#[test]
fn commands_answer_as_the_stock_switch_does() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let (ours, stock) = (Lab::empty(), Stock::start());
    vsctl(&ours.daemon, SET_UP);
    // Flows stay until they are shown, however slow the tools are.
    crate::helpers::keep_flows(&ours.daemon);
    stock.vsctl("set Open_vSwitch . other_config:max-idle=600000");
    for bridge in ["br0", "br1"] {
        ours.ofctl(&["add-flow", bridge, "actions=NORMAL"]);
        stock.dir.ovs("ovs-ofctl", &["add-flow", bridge, "actions=NORMAL"]).unwrap();
    }
    let files = TempDir::new("flows").unwrap();
    let file = files.path().join("flows").display().to_string();
    let lines =
        format!("# flows\n\nadd {KEY} 2\n{KEX}\ndelete {KEX}\n modify {KEX} 1\nmodify {KEY} 1\nmodify foo\n");
    std::fs::write(&file, lines).unwrap();
    let back = "eth(src=50:54:00:00:00:07,dst=50:54:00:00:00:05)";
    let mut differences = String::new();
    for line in ALIKE.lines() {
        let line = line.replace("FORTH", FROM_5_TO_7).replace("BACK", back);
        let line = line.replace("FILE", &file).replace("KEY", KEY).replace("KEX", KEX);
        let out = appctl_output(&ours.daemon, &line);
        let (got, want) = (normal(&line, &out.stdout, &out.stderr), stock.appctl(&line));
        if got != want {
            differences += &format!("$ ovs-appctl {line}\n--- ours\n{got}\n--- stock\n{want}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// A switch with the ports of [`SET_UP`] and a `NORMAL` flow.
fn lab() -> Lab {
    let lab = Lab::empty();
    vsctl(&lab.daemon, SET_UP);
    lab.ofctl(&["add-flow", "br0", "actions=NORMAL"]);
    lab
}

/// Sluice refuses `line` with the reason `why`.
pub(super) fn refused(lab: &Lab, line: &str, why: &str) {
    let out = appctl_output(&lab.daemon, line);
    assert_eq!(out.status.code(), Some(2), "{line}: {}", out.stdout);
    assert!(out.stderr.contains(why), "{line}: {}", out.stderr);
}

#[test]
fn unsupported_commands_are_refused() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    for (line, why) in [
        ("dpctl/add-dp dummy@ovs-dummy", "add_dp (ovs-dummy: the name is reserved)"),
        ("dpctl/add-dp nope@other", "no such datapath type"),
        ("dpctl/del-dp dummy@ovs-dummy", "ends with the last bridge of its type"),
        ("dpctl/del-dp nope", "no such datapath"),
        ("dpctl/add-if dummy@ovs-dummy p1,type=dummy", "adding p1 to dummy@ovs-dummy failed (File exists)"),
        ("dpctl/add-if nope v1", "no such datapath"),
        ("dpctl/del-if dummy@ovs-dummy 77", "deleting port 77 from dummy@ovs-dummy failed (No such device)"),
        ("dpctl/del-if dummy@ovs-dummy nope", "no port named nope"),
        ("dpctl/set-if dummy@ovs-dummy p1,n_rxq=x", "n_rxq"),
        ("dpctl/set-if dummy@ovs-dummy nope,n_rxq=2", "no port named nope"),
        ("dpctl/set-if nope p1,n_rxq=2", "no such datapath"),
        ("dpctl/dump-flows a b", "a datapath is given already"),
        ("dpctl/dump-flows type=foo", "Failed to parse type (foo)"),
        ("dpctl/add-flow nope in_port(1),eth() 1", "no such datapath"),
        ("dpctl/add-flow eth(),eth_type(0x9900) 1", "updating flow table (Invalid argument)"),
        ("dpctl/add-flow in_port(1),eth() foo", "parsing actions (no port \"foo\""),
        ("dpctl/add-flows -", "Opening file \"-\" failed"),
        ("dpctl/add-flows /dev/zero", "not a file of at most 16 MiB"),
        ("dpctl/normalize-actions foo 1", "odp_flow_key_from_string"),
        ("set-options --format xml", "option --format has invalid value xml"),
        ("set-options --bogus json", "invalid option --bogus"),
        ("ofproto/detrace ufid:1 3", "Expecting 'pmd=PMD-ID'"),
        ("ofproto/trace nope in_port(1),eth(),eth_type(0x0806)", "Cannot find the datapath"),
        ("dpctl/flush-conntrack ct_nw_src=1.2.3.4 x", "field x missing value"),
        ("dpctl/ct-get-limits zone=x", "invalid zone"),
        ("dpif/get-flow br0 ufid:5", "bridge br0 has no such flow"),
        ("fdb/add br0 nope 0 02:00:00:00:00:01", "no such port"),
        ("fdb/add br0 p1 4096 02:00:00:00:00:01", "a VLAN has a number of 0 to 4095"),
        ("ofproto/trace br0 in_port=1 --ct-next est", "If \"trk\" is unset, no other flags are set"),
        ("upcall/set-flow-limit x", "not a number"),
    ] {
        refused(&lab, line, why);
    }
}

#[test]
fn exact_flows_and_limits_by_command() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    let packet = |port: u16| {
        format!(
            "in_port(1),{FROM_5_TO_7},eth_type(0x0800),ipv4(src=1.0.0.1,dst=1.0.0.2,proto=17,tos=0,ttl=64,frag=no),\
             udp(src={port},dst=9)"
        )
    };
    let flows = || lab.appctl("dpctl/dump-flows").lines().filter(|l| l.contains("in_port(1)")).count();
    lab.receive("p1", &packet(1));
    lab.receive("p1", &packet(2));
    assert_eq!(flows(), 1);
    assert_eq!(lab.appctl("upcall/disable-megaflows"), "megaflows disabled\n");
    lab.appctl("revalidator/wait");
    assert_eq!(flows(), 0);
    lab.receive("p1", &packet(1));
    lab.receive("p1", &packet(2));
    assert_eq!(flows(), 2);
    // The flows agree with the tables: the revalidator keeps them.
    lab.ofctl(&["add-flow", "br0", "table=9,actions=drop"]);
    lab.appctl("revalidator/wait");
    assert_eq!(flows(), 2);
    assert!(lab.appctl("dpctl/dump-flows").contains("udp(src=2,dst=9)"));
    assert_eq!(lab.appctl("upcall/enable-megaflows"), "megaflows enabled\n");
    lab.appctl("revalidator/wait");
    lab.receive("p1", &packet(1));
    assert_eq!(flows(), 1);
    assert_eq!(lab.appctl("upcall/set-flow-limit 7"), "set flow_limit to 7\n");
    assert!(lab.appctl("upcall/show").contains("(limit 7)"));
    let ufid = lab.appctl("dpctl/dump-flows -m");
    let ufid = ufid.split("ufid:").nth(1).unwrap().split(',').next().unwrap();
    let found = lab.appctl(&format!("dpif/get-flow br0 ufid:{ufid}"));
    assert!(found.starts_with("recirc_id(0)") && found.lines().count() == 1, "{found}");
    let named = lab.appctl(&format!("dpctl/get-flow --names ufid:{ufid}"));
    assert!(named.contains("in_port(p1)") && !named.contains("ufid"), "{named}");
    let verbose = lab.appctl(&format!("dpctl/get-flow -m ufid:{ufid}"));
    assert!(verbose.starts_with(&format!("ufid:{ufid}, ")), "{verbose}");
}

#[test]
fn a_generated_packet_is_learned_from_and_reaches_controllers() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    lab.ofctl(&["add-flow", "br0", "priority=40000,udp,actions=mod_vlan_vid:5,controller,output:2"]);
    let socket = lab.daemon.rundir().join("monitor.txt");
    let pid = lab.daemon.rundir().join("monitor.pid");
    let pid_option = format!("--pidfile={}", pid.display());
    let log = format!("--log-file={}", socket.display());
    lab.ofctl(&[
        "monitor",
        "br0",
        "65534",
        "-P",
        "nxt_packet_in",
        "--detach",
        "--no-chdir",
        &pid_option,
        &log,
        "-vvconn:dbg",
    ]);
    let flow = "in_port=1,udp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,tp_src=1,tp_dst=2";
    let reported = || std::fs::read_to_string(&socket).unwrap_or_default().matches("NXT_PACKET_IN ").count();
    let story = lab.appctl(&format!("ofproto/trace br0 {flow}"));
    assert!(story.contains("dont_send=1"), "{story}");
    assert_eq!(reported(), 0);
    let story = lab.appctl(&format!("ofproto/trace br0 {flow} --l7 0102030405 -generate"));
    assert!(story.contains("dont_send=0"), "{story}");
    wait_for(LIMIT, "the packet-in", || reported() == 1).unwrap();
    let seen = std::fs::read_to_string(&socket).unwrap();
    assert!(seen.contains("total_len=51 in_port=1") && seen.contains("dl_vlan=5"), "{seen}");
    // No packet is forwarded or counted.
    assert!(lab.ofctl(&["dump-ports", "br0", "2"]).contains("tx pkts=0"));
    assert_eq!(lab.n_packets("priority=40000"), 0);
    let monitor = std::fs::read_to_string(&pid).unwrap();
    testkit::Cmd::new("kill").args([monitor.trim()]).run().unwrap();
}

#[test]
fn controllers_are_reconnected() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    let path = lab.daemon.rundir().join("controller.sock");
    let listener = UnixListener::bind(&path).unwrap();
    vsctl(&lab.daemon, &format!("set-controller br0 unix:{}", path.display()));
    let (mut first, _) = listener.accept().unwrap();
    first.set_read_timeout(Some(LIMIT)).unwrap();
    let mut hello = [0; 8];
    first.read_exact(&mut hello).unwrap();
    lab.appctl("bridge/reconnect br1");
    lab.appctl("bridge/reconnect br0");
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).unwrap();
    let (mut second, _) = listener.accept().unwrap();
    second.read_exact(&mut hello).unwrap();
}
