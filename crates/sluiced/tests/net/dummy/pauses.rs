//! Pipelines that pause for a controller, which resumes them at once, send the same frames as without a pause.

use super::nsh::sent;
use super::*;
use crate::helpers::LIMIT;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use testkit::Running;

struct Pauses {
    lab: Lab,
    dir: TempDir,
    _monitor: Running,
}

impl Pauses {
    /// Port 1 receives, and port 2 writes its frames. A controller resumes each packet.
    fn new(rules: &str) -> Pauses {
        let lab = Lab::empty();
        let dir = TempDir::new("pauses").unwrap();
        let pcap = dir.path().join("p2");
        vsctl(
            &lab.daemon,
            &format!(
                "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure \
                 -- add-port br0 p1 -- set Interface p1 type=dummy ofport_request=1 \
                 -- add-port br0 p2 -- set Interface p2 type=dummy ofport_request=2 options:tx_pcap={}",
                pcap.display()
            ),
        );
        let file = dir.path().join("rules");
        std::fs::write(&file, rules).unwrap();
        lab.ofctl(&["-OOpenFlow13", "add-flows", "br0", file.to_str().unwrap()]);
        let cmd = lab.daemon.tool("ovs-ofctl").arg("-vvconn:console:dbg");
        let monitor =
            cmd.args("-OOpenFlow13 -P nxt_packet_in2 monitor br0 resume".split(' ')).spawn().unwrap();
        // The reply to the format of packet-ins; an earlier one may be to their length.
        let ready = || {
            let log = monitor.stderr();
            let format = log.split_once("SET_PACKET_IN_FORMAT");
            format.is_some_and(|(_, after)| after.contains("received: OFPT_BARRIER_REPLY"))
        };
        wait_for(LIMIT, "the monitor", ready).unwrap();
        Pauses { lab, dir, _monitor: monitor }
    }

    fn frames(&self) -> Vec<String> {
        sent(&self.dir.path().join("p2"))
    }

    /// A UDP packet with these last bytes of its Ethernet and IP sources.
    fn receive(&self, case: u8, paused: u8) {
        let flow = format!(
            "in_port(1),eth(src=50:54:00:00:{paused:02x}:{case:02x},dst=50:54:00:00:00:07),eth_type(0x0800),\
             ipv4(src=10.0.{paused}.{case},dst=10.0.9.5,proto=17,tos=0,ttl=64,frag=no),udp(src=1000,dst=53)"
        );
        self.lab.receive("p1", &flow);
    }
}

/// OVS 3.5 has one connection after these rules, and sends the packet once.
#[test]
fn a_translated_packet_is_of_the_same_connection_after_a_pause() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let setup = Pauses::new(
        "table=0,ip,actions=ct(commit,zone=8,nat(dst=10.0.0.9),table=1)\n\
         table=1,actions=controller(pause),resubmit(,2)\n\
         table=2,ip,actions=ct(commit,zone=8,nat(src=10.0.0.3),table=3)\n\
         table=3,actions=2\n",
    );
    setup.receive(1, 0);
    wait_for(LIMIT, "the frame", || setup.frames().len() == 1).unwrap();
    assert_eq!(
        setup.lab.appctl("dpctl/dump-conntrack"),
        "udp,orig=(src=10.0.0.1,dst=10.0.9.5,sport=1000,dport=53),\
         reply=(src=10.0.0.9,dst=10.0.0.1,sport=53,dport=1000),zone=8\n"
    );
}

/// Number of random pipelines.
const CASES: u8 = 60;
/// Tables of each.
const TABLES: u8 = 4;

/// Random numbers below a bound.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Actions of one table, without those that end the list.
fn list(random: &mut Random, table: u8, zone: &str) -> Vec<String> {
    let one = |random: &mut Random| {
        let r = 1 + random.below(200);
        let next = table + 1;
        match random.below(25) {
            0 => format!("set_field:02:00:00:00:00:{r:02x}->eth_dst"),
            1 => format!("set_field:10.0.9.{r}->ip_dst"),
            2 => format!("set_field:{r}->udp_dst"),
            3 => "dec_ttl".to_string(),
            4 => format!("set_field:{r}->pkt_mark"),
            5 => format!("set_queue:{r}"),
            6 => format!("set_field:{r}->reg{}", r % 4),
            7 => format!("set_field:{r}->metadata"),
            8 => format!("push:NXM_NX_REG{}[0..15]", r % 4),
            9 => "pop:NXM_OF_UDP_SRC[]".to_string(),
            10 => format!("move:NXM_NX_REG{}[0..15]->NXM_OF_UDP_SRC[]", r % 4),
            11 => format!("set_field:{r}->tun_id"),
            12 => "move:NXM_NX_TUN_ID[0..15]->NXM_OF_UDP_SRC[]".to_string(),
            13 => "move:NXM_NX_PKT_MARK[0..15]->NXM_OF_UDP_DST[]".to_string(),
            14 => "move:OXM_OF_METADATA[0..15]->NXM_OF_UDP_SRC[]".to_string(),
            15 => "move:NXM_NX_CT_STATE[0..7]->NXM_OF_UDP_DST[0..7]".to_string(),
            16 => "move:NXM_NX_CT_MARK[0..7]->NXM_OF_UDP_SRC[0..7]".to_string(),
            17 => format!("push_vlan:0x8100,set_field:{}->vlan_vid,pop_vlan", 4096 + r),
            18 => "ct_clear".to_string(),
            19 if table + 1 < TABLES => {
                format!(
                    "ct(commit,zone={zone},nat(dst=10.0.9.{r}),exec(set_field:{r}->ct_mark),table={next})"
                )
            }
            20 if table + 1 < TABLES => format!("ct(commit,zone={zone},nat(src=10.0.8.{r}),table={next})"),
            21 if table + 1 < TABLES => format!("ct(zone={zone},nat,table={next})"),
            22 if table + 1 < TABLES => format!("resubmit(,{next})"),
            23 => format!("clone(set_field:{r}->udp_src,output:2)"),
            _ => "output:2".to_string(),
        }
    };
    let mut actions = Vec::new();
    for _ in 0..1 + random.below(5) {
        let action = one(random);
        if !actions.iter().any(|other: &String| goes_on(other)) || !goes_on(&action) {
            actions.push(action);
        }
    }
    actions
}

/// Whether an action continues in the next table. A pause delays one of two such paths, so only one may track packets.
fn goes_on(action: &str) -> bool {
    action.contains("table=") || action.starts_with("resubmit")
}

/// The rules of a pipeline, twice: without and with pauses.
fn pipeline(case: u8, random: &mut Random) -> String {
    let mut rules = String::new();
    for table in 0..TABLES {
        let mut actions = list(random, table, "ZONE");
        if table + 1 == TABLES {
            actions.push("output:2".to_string());
        }
        let without = actions.join(",");
        if random.below(2) == 0 {
            let at = random.below(actions.len() + 1);
            actions.insert(at, "controller(pause)".to_string());
        }
        let is_end = actions.iter().any(|action| goes_on(action)) || table + 1 == TABLES;
        let tail = if !is_end && random.below(3) == 0 {
            format!(",write_actions(output:2),goto_table:{}", table + 1)
        } else {
            String::new()
        };
        for (paused, actions) in [(0, without), (1, actions.join(","))] {
            let actions = actions.replace("ZONE", &(1 + 2 * u32::from(case) + paused).to_string());
            let source = format!("50:54:00:00:{paused:02x}:{case:02x}");
            let _ = writeln!(rules, "table={table},udp,dl_src={source},actions={actions}{tail}");
        }
    }
    rules
}

/// The frames of each pipeline without or with pauses, without the bytes that tell both apart.
fn by_case(frames: &[String], paused: u8) -> BTreeMap<u8, Vec<String>> {
    let mut all = BTreeMap::<u8, Vec<String>>::new();
    for frame in frames {
        let mut bytes: Vec<u8> =
            (0..frame.len() / 2).map(|n| u8::from_str_radix(&frame[2 * n..2 * n + 2], 16).unwrap()).collect();
        if bytes[10] == paused {
            bytes[10] = 0;
            // Checksums of the IP and UDP headers, and the third byte of the source.
            for n in [24, 25, 28, 40, 41] {
                bytes[n] = 0;
            }
            let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            all.entry(bytes[11]).or_default().push(text);
        }
    }
    all.values_mut().for_each(|frames| frames.sort());
    all
}

#[test]
fn a_pause_changes_no_frame() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let mut random = Random(1);
    let rules: Vec<String> = (0..CASES).map(|case| pipeline(case, &mut random)).collect();
    let setup = Pauses::new(&rules.concat());
    (0..CASES).for_each(|case| setup.receive(case, 0));
    let without = by_case(&setup.frames(), 0);
    for case in 0..CASES {
        setup.receive(case, 1);
        let expected = without.get(&case).cloned().unwrap_or_default();
        let frames = || by_case(&setup.frames(), 1).remove(&case).unwrap_or_default();
        let done = wait_for(LIMIT, "the frames", || frames().len() >= expected.len());
        assert!(
            done.is_ok() && frames() == expected,
            "{case}: {expected:#?}\n{:#?}\n{}",
            frames(),
            rules[usize::from(case)]
        );
    }
    let count = |zone_parity: u32| {
        let dump = setup.lab.appctl("dpctl/dump-conntrack");
        let zones =
            dump.lines().filter_map(|l| l.split_once("zone=")?.1.split(',').next()?.parse::<u32>().ok());
        zones.filter(|zone| zone % 2 == zone_parity).count()
    };
    assert_eq!(count(0), count(1), "connections");
}
