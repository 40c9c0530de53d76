//! Rules, groups, meters and learned addresses of a switch after its restart, its crash, and with controllers.

use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use testkit::{Daemon, Netns, RunDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, spec, vsctl, wait_log, wait_until};

/// The bridge of the tests.
const BRIDGE: &str = "add-br br0 -- set Bridge br0 fail_mode=secure \
     protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15 -- add-port br0 p1 -- set Interface p1 type=internal \
     -- add-port br0 p2 -- set Interface p2 type=internal";

/// Rules with most kinds of properties, fields and actions.
const RULES: &str = "\
table=0,priority=65535,cookie=0x123456789abcdef0,ip,nw_src=10.0.0.0/255.0.255.0 actions=ct(table=1,zone=NXM_NX_REG0[0..15],nat)
table=0,priority=7,idle_timeout=30000,hard_timeout=40000,importance=9,send_flow_rem,arp actions=move:NXM_OF_ETH_SRC[]->NXM_NX_XXREG1[0..47],NORMAL
table=0,priority=6,tun_metadata1=0xaa/0xff actions=set_field:0x1234->tun_metadata1,output:1
table=0,priority=5,conj_id=7,ip actions=group:1
table=0,priority=4,ip,nw_src=10.1.1.1 actions=conjunction(7,1/2)
table=0,priority=4,tcp,tp_dst=0x50/0xfff0 actions=conjunction(7,2/2)
table=0,priority=3,in_port=1,dl_vlan=7 actions=enqueue:2:1,strip_vlan,mod_vlan_vid:8,note:01.02.03.04.05.06
table=0,priority=2,ct_state=+trk+est,ipv6,ipv6_dst=fe80::/10 actions=learn(table=9,idle_timeout=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:0x1->NXM_NX_REG0[],output:NXM_OF_IN_PORT[]),resubmit(,2)
table=0,priority=1,no_packet_counts,no_byte_counts,mpls,mpls_label=5 actions=pop_mpls:0x0800,dec_ttl,controller(reason=action,userdata=01.02.03,max_len=128)
table=0,priority=0 actions=drop
table=1,priority=1,reg3=0xffff0000/0xffff0000,metadata=0x5 actions=meter:1,write_actions(set_field:02:00:00:00:00:01->eth_dst,output:2),goto_table:3
table=3,priority=32768,tcp actions=clone(push_vlan:0x8100,set_field:4099->vlan_vid,output:2),ct(commit,zone=5,nat(src=10.0.0.1-10.0.0.9:1-99,random),exec(set_field:0x7->ct_mark),alg=ftp)
";

/// A switch in a namespace and a run directory of its own.
fn first() -> (Netns, RunDir, Daemon) {
    let netns = Netns::new("restore").unwrap();
    let run = RunDir::new("restore").unwrap();
    let daemon = spec(&netns).rundir(&run).start().unwrap();
    (netns, run, daemon)
}

/// Starts a switch in a run directory, perhaps that of an earlier one.
fn start_in(netns: &Netns, run: &RunDir) -> Daemon {
    let daemon = spec(netns).rundir(run).start().unwrap();
    wait_for(LIMIT, "the bridge", || {
        daemon.tool("ovs-appctl").args(["dpif/show"]).output().is_ok_and(|out| out.stdout.contains("br0"))
    })
    .unwrap();
    daemon
}

fn ofctl(daemon: &Daemon, args: &[&str]) -> String {
    daemon.ovs("ovs-ofctl", args).unwrap().stdout
}

/// Rules, groups, meters and mappings, as `ovs-ofctl` prints them.
fn dump(daemon: &Daemon) -> String {
    let rules = ofctl(daemon, &["-O", "OpenFlow15", "--no-stats", "dump-flows", "br0"]);
    // Rules of equal priority are in any order.
    let mut rules: Vec<&str> = rules.lines().collect();
    rules.sort_unstable();
    let others = ["dump-groups", "dump-meters", "dump-tlv-map"].map(|command| {
        let text = ofctl(daemon, &["-O", "OpenFlow15", command, "br0"]);
        // The first line has the transaction id.
        text.lines().skip(1).collect::<Vec<_>>().join("\n")
    });
    format!("{}\n{}", rules.join("\n"), others.join("\n"))
}

/// Seconds since the creation of group 1 and of meter 1.
pub(crate) fn ages_s(daemon: &Daemon) -> [f64; 2] {
    [("dump-group-stats", "group_id=1,"), ("meter-stats", "meter:1 ")].map(|(command, of)| {
        let text = ofctl(daemon, &["-O", "OpenFlow13", command, "br0"]);
        let age = text.split(of).nth(1).and_then(|rest| rest.split("duration").nth(1));
        let age = age.and_then(|age| age.trim_start_matches([':', '=']).split('s').next()?.parse().ok());
        age.unwrap_or_else(|| panic!("{text}"))
    })
}

fn fill(daemon: &Daemon) {
    vsctl(daemon, BRIDGE);
    let file = daemon.rundir().join("rules");
    std::fs::write(&file, RULES).unwrap();
    ofctl(daemon, &["add-tlv-map", "br0", "{class=0xffff,type=1,len=4}->tun_metadata1"]);
    for meter in [
        "meter=1,kbps,burst,stats,bands=type=drop,rate=100,burst_size=50",
        "meter=2,pktps,bands=type=drop,rate=7",
    ] {
        ofctl(daemon, &["-O", "OpenFlow15", "add-meter", "br0", meter]);
    }
    for group in [
        "group_id=2,type=all,bucket=bucket_id:0,actions=output:2,bucket=bucket_id:5,actions=output:1",
        "group_id=1,type=select,selection_method=hash,fields(ip_src,tcp_dst=0xfff0),bucket=bucket_id:1,weight:7,watch_port:1,actions=output:1,\
         bucket=bucket_id:2,weight:3,actions=group:2",
    ] {
        ofctl(daemon, &["-O", "OpenFlow15", "add-group", "br0", group]);
    }
    ofctl(daemon, &["-O", "OpenFlow15", "add-flows", "br0", &file.to_string_lossy()]);
}

/// Waits until the file for the next process has these words.
fn wait_kept(run: &RunDir, words: &str) {
    let file = run.join("ovs-vswitchd.state");
    let has = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains(words));
    wait_for(LIMIT, &format!("`{words}` in the state"), has).unwrap();
}

/// Kills a daemon once the state that it restored is proved.
fn crash(daemon: Daemon) {
    let mark = daemon.rundir().join("ovs-vswitchd.state.mark");
    wait_for(LIMIT, "proof of the restored state", || !mark.exists()).unwrap();
    daemon.crash().unwrap();
}

#[test]
fn all_state_comes_back_after_a_kill_and_after_an_exit() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let (netns, run, daemon) = first();
    fill(&daemon);
    appctl(&daemon, "fdb/add br0 p1 0 02:00:00:00:00:77");
    let packet = "in_port=2 packet=0200000000780200000000790806 actions=table";
    ofctl(&daemon, &["packet-out", "br0", packet]);
    let before = dump(&daemon);
    // Deletions are kept too.
    ofctl(&daemon, &["add-flow", "br0", "table=5,actions=drop"]);
    ofctl(&daemon, &["add-flow", "br0", "table=6,udp,actions=drop"]);
    ofctl(&daemon, &["del-flows", "br0", "table=5"]);
    ofctl(&daemon, &["--strict", "del-flows", "br0", "table=6,udp"]);
    wait_kept(&run, "-rule\t6\t32768\tudp\n");
    wait_kept(&run, "mac\t0\t02:00:00:00:00:77\tstatic\tp1\n");
    // Old enough for the difference to a group and a meter of the next process.
    let mut ages = [0.0; 2];
    wait_for(LIMIT, "a second", || {
        ages = ages_s(&daemon);
        ages[0].min(ages[1]) > 1.0
    })
    .unwrap();
    let since = Instant::now();
    crash(daemon);

    let daemon = start_in(&netns, &run);
    let past_s = since.elapsed().as_secs_f64();
    let older = ages_s(&daemon);
    assert!((0..2).all(|n| older[n] >= ages[n] + past_s - 0.01), "{ages:?}, {older:?} {past_s} s later");
    assert_eq!(dump(&daemon), before);
    wait_log(&daemon, "br0: restored 12 rules, 2 groups and 2 meters of the last process, less 0");
    // Counters of packets come with the whole state, at an exit.
    ofctl(&daemon, &["packet-out", "br0", packet]);
    let counted =
        |daemon: &Daemon| ofctl(daemon, &["dump-flows", "br0", "arp"]).contains("n_packets=1, n_bytes=14,");
    wait_for(LIMIT, "a counted packet", || counted(&daemon)).unwrap();
    appctl(&daemon, "exit");
    daemon.wait(LIMIT).unwrap();

    let daemon = start_in(&netns, &run);
    assert_eq!(dump(&daemon), before);
    assert!(counted(&daemon), "{}", ofctl(&daemon, &["dump-flows", "br0"]));
    let learned = appctl(&daemon, "fdb/show br0");
    assert!(learned.contains("02:00:00:00:00:77") && learned.contains("static"), "{learned}");
    // Removed ports leave nothing behind.
    appctl(&daemon, "exit --cleanup");
    daemon.wait(LIMIT).unwrap();
    assert!(!run.join("ovs-vswitchd.state").exists());
}

/// Accepts the connection of a bridge, and adds a rule of that priority that drops all packets, in OpenFlow 1.0.
fn speak(listener: &UnixListener, priority: u8) -> UnixStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = vec![1, 0, 0, 8, 0, 0, 0, 1, 1, 14, 0, 72, 0, 0, 0, 2, 0, 0x3f, 0xff, 0xff];
    bytes.resize(8 + 8 + 40 + 8, 0);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, priority, 255, 255, 255, 255, 255, 255, 0, 0]);
    stream.write_all(&bytes).unwrap();
    stream
}

#[test]
fn restored_rules_end_when_a_controller_admits_the_bridge() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let (netns, run, daemon) = first();
    vsctl(&daemon, BRIDGE);
    let socket = run.join("controller");
    let listener = UnixListener::bind(&socket).unwrap();
    vsctl(&daemon, &format!("set-controller br0 unix:{}", socket.display()));
    let rules = |daemon: &Daemon| ofctl(daemon, &["--no-stats", "dump-flows", "br0"]);
    let first = speak(&listener, 1);
    wait_for(LIMIT, "the rule", || rules(&daemon) == " priority=1 actions=drop\n").unwrap();
    wait_kept(&run, "rule\t0\t1\t");
    daemon.crash().unwrap();

    // A service connection finds them, and a controller that speaks begins anew.
    let daemon = start_in(&netns, &run);
    assert_eq!(rules(&daemon), " priority=1 actions=drop\n");
    drop(first);
    let second = speak(&listener, 2);
    wait_for(LIMIT, "the rule", || rules(&daemon) == " priority=2 actions=drop\n").unwrap();
    vsctl(&daemon, "set Open_vSwitch . other_config:restore=always");
    wait_kept(&run, "rule\t0\t2\t");
    crash(daemon);

    let daemon = start_in(&netns, &run);
    drop(second);
    let _third = speak(&listener, 3);
    let has = |n: u16| rules(&daemon).contains(&format!("priority={n} actions=drop"));
    wait_for(LIMIT, "the rule", || has(3)).unwrap();
    assert!(has(2), "{}", rules(&daemon));
    vsctl(&daemon, "set Open_vSwitch . other_config:restore=never");
    wait_for(LIMIT, "no state", || !run.join("ovs-vswitchd.state").exists()).unwrap();
    crash(daemon);

    let daemon = start_in(&netns, &run);
    assert_eq!(rules(&daemon), "");
    vsctl(&daemon, "set Open_vSwitch . other_config:restore=sometimes");
    wait_log(&daemon, "other_config:restore=sometimes: there are auto, always and never");
}

#[test]
fn state_that_cannot_be_trusted_is_left() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let (netns, run, daemon) = first();
    vsctl(&daemon, BRIDGE);
    ofctl(&daemon, &["add-flow", "br0", "priority=1,actions=drop"]);
    wait_kept(&run, "rule\t0\t1\t");
    let state = run.join("ovs-vswitchd.state");
    let mut daemon = daemon;
    for (spoil, why) in [
        ("bridge\tbr0\nrule\tone\n", "bad rule: starting without the state of the last process"),
        ("", "the last process ended soon after it restored this state"),
    ] {
        crash(daemon);
        let kept = std::fs::read_to_string(&state).unwrap();
        std::fs::write(&state, format!("{kept}{spoil}")).unwrap();
        if spoil.is_empty() {
            std::fs::write(run.join("ovs-vswitchd.state.mark"), "").unwrap();
        }
        daemon = start_in(&netns, &run);
        wait_log(&daemon, why);
        assert_eq!(ofctl(&daemon, &["--no-stats", "dump-flows", "br0"]), "");
        ofctl(&daemon, &["add-flow", "br0", "priority=1,actions=drop"]);
        wait_kept(&run, "rule\t0\t1\t");
    }
    // With flow-restore-wait, OVS's scripts restore.
    vsctl(&daemon, "--no-wait set Open_vSwitch . other_config:flow-restore-wait=true");
    crash(daemon);
    let daemon = start_in(&netns, &run);
    assert_eq!(ofctl(&daemon, &["--no-stats", "dump-flows", "br0"]), "");
    vsctl(&daemon, "remove Open_vSwitch . other_config flow-restore-wait");
    wait_until(&daemon, "Interface p1 link_state=down");
}
