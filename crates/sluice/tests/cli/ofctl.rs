//! Compared with `ovs-ofctl`: the same lines on the same stock switch, with dummy ports.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use testkit::{Cmd, Daemon, DaemonSpec, Output, RunDir, require_programs, wait_for};

use crate::server::sluice;

/// The stock switch with a bridge of two ports.
pub(crate) struct Stock {
    pub(crate) dir: RunDir,
    _daemons: Vec<Daemon>,
}

impl Stock {
    pub(crate) fn start() -> Stock {
        let dir = RunDir::new("ofctl").unwrap();
        let spec = |program: &Path| Ok(DaemonSpec::new(program)?.rundir(&dir));
        let daemons = testkit::start_stock(spec, "ovs-vswitchd", &[], [&[], &["--enable-dummy"]]).unwrap();
        let set_up = "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
            -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
            -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2";
        dir.ovs("ovs-vsctl", &set_up.split_whitespace().collect::<Vec<_>>()).unwrap();
        Stock { dir, _daemons: daemons }
    }

    pub(crate) fn ours(&self, line: &str, input: &str) -> Output {
        let cmd = sluice().env("OVS_RUNDIR", self.dir.path()).args(["ofctl", "--timeout=20"]);
        cmd.args(line.split_whitespace()).input(input).output().unwrap()
    }

    pub(crate) fn theirs(&self, line: &str, input: &str) -> Output {
        let cmd = self.dir.tool("ovs-ofctl", None).args(["--timeout=20"]);
        cmd.args(line.split_whitespace()).input(input).output().unwrap()
    }
}

/// A word without parts that differ between two runs.
fn normal(word: &str) -> String {
    for key in ["duration=", "duration:", "(xid=", "xid=", "idle_age=", "time="] {
        if word.starts_with(key) {
            return format!("{key}X");
        }
    }
    if let Some((before, after)) = word.split_once(",duration=") {
        return format!("{before},{}", after.split_once(',').map_or("", |(_, rest)| rest));
    }
    // The duration of a removed rule: "duration.016s".
    if word.starts_with("duration") { "duration".to_string() } else { word.to_string() }
}

/// Lines without parts that differ between two runs.
pub(crate) fn plain(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let words = line.split(' ').filter(|word| !word.starts_with("hard_age="));
        words.map(normal).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect()
}

/// Differences between the tools. If one reports an error, both must have one, and an exit code that says so.
fn compare(stock: &Stock, line: &str, input: &str) -> Option<String> {
    let (ours, theirs) = (stock.ours(line, input), stock.theirs(line, input));
    let (mut a, mut b) = (plain(&ours.stdout), plain(&theirs.stdout));
    if line.contains("dump-flows") {
        // Rules of equal priority have no defined order, in two requests either.
        a.sort();
        b.sort();
    }
    let codes = (ours.status.code(), theirs.status.code());
    if a == b && codes.0 == codes.1 {
        return None;
    }
    let text = |o: &Output| format!("{}{}{:?}\n", o.stdout, o.stderr, o.status.code());
    Some(format!("$ ofctl {line}\n--- ours\n{}--- stock\n{}", text(&ours), text(&theirs)))
}

/// Lines that both tools run, ours first; those behind `>` have an effect that a second run would meet: ours alone.
/// FILE has the rules of [`INPUT`], OTHER those of [`CHANGED`].
const LINES: &str = "\
add-flow br0 actions=push_vlan:0x8100,output:1
-F openflow10 add-flow br0 reg0=1,actions=drop
-F openflow10 dump-flows br0 reg0=1
-O OpenFlow11 add-flow br0 ip,nw_ttl=5,actions=drop
-O OpenFlow12 mod-flows br0 actions=meter:1
add-group br0 group_id=1,type=all,bucket=push_vlan:0x8100,output:1
--no-names show br0
-O OpenFlow13 --no-names show br0
-O OpenFlow14 show br0
dump-desc br0
probe br0
get-frags br0
set-frags br0 drop
get-frags br0
set-frags br0 normal
dump-tables br0
-O OpenFlow11 dump-tables br0
-O OpenFlow12 dump-tables br0
-O OpenFlow13 dump-tables br0
-O OpenFlow13 dump-table-features br0
-O OpenFlow14 dump-table-features br0
-O OpenFlow14 dump-table-desc br0
-O OpenFlow11 mod-table br0 0 drop
-O OpenFlow12 mod-table br0 all continue
-O OpenFlow13 mod-table br0 0 drop
-O OpenFlow14 mod-table br0 1 evict
-O OpenFlow14 mod-table br0 2 vacancy:20,80
-O OpenFlow14 mod-table br0 2 vacancy:80,20
-O OpenFlow14 mod-table br0 2 vacancy
-O OpenFlow14 mod-table br0 300 evict
-O OpenFlow14 mod-table br0 2 foo
-O OpenFlow14 dump-table-desc br0
-O OpenFlow14 mod-table br0 1 noevict
-O OpenFlow14 mod-table br0 2 novacancy
--no-names dump-ports br0
-O OpenFlow13 --no-names dump-ports br0 1
-O OpenFlow14 --no-names dump-ports br0
-O OpenFlow15 --no-names dump-ports br0 LOCAL
--names dump-ports br0 p2
dump-ports-desc br0
-O OpenFlow13 dump-ports-desc br0
-O OpenFlow15 dump-ports-desc br0 1
mod-port br0 p1 down
dump-ports-desc br0
mod-port br0 p1 up
mod-port br0 1 no-flood
mod-port br0 p2 no-packet-in
mod-port br0 p2 no-receive
dump-ports-desc br0
mod-port br0 1 flood
mod-port br0 p2 packet-in
mod-port br0 p2 receive
mod-port br0 p1 foo
mod-port br0 zz up
-O OpenFlow13 mod-port br0 p1 no-forward
-O OpenFlow13 mod-port br0 p1 forward
--no-names queue-stats br0
--no-names queue-stats br0 1
--no-names queue-stats br0 all all
queue-stats br0 zz
--no-names queue-get-config br0
--no-names queue-get-config br0 1
-O OpenFlow13 --no-names queue-get-config br0 1
-O OpenFlow14 --no-names queue-get-config br0
-O OpenFlow14 --no-names queue-get-config br0 1 0
-O OpenFlow13 meter-features br0
> -O OpenFlow13 add-meter br0 meter=1,kbps,burst,stats,bands=type=drop,rate=100,burst_size=5
-O OpenFlow13 mod-meter br0 meter=1,pktps,band=type=drop,rate=7
-O OpenFlow15 dump-meters br0
-O OpenFlow13 dump-meters br0 meter=1
-O OpenFlow13 dump-meter br0
-O OpenFlow13 meter-stats br0
-O OpenFlow13 meter-stats br0 meter=1
-O OpenFlow13 add-meter br0 meter=2,pktps
-O OpenFlow13 add-meter br0 bands=type=drop,rate=1
-O OpenFlow13 add-meter br0 meter=2,pktps,band=type=drop
-O OpenFlow13 add-meter br0 meter=2,foo,band=type=drop,rate=1
-O OpenFlow13 add-meter br0 meter=2,pktps,band=type=drip,rate=1
-O OpenFlow13 add-meter br0 meter=2,pktps,band=type=drop,rate=1,burst_size=5
-O OpenFlow13 add-meter br0 meter=2,band=type=drop,rate=1
-O OpenFlow13 add-meter br0 meter=all,pktps,band=type=drop,rate=1
-O OpenFlow13 mod-meter br0 meter=9,pktps,band=type=drop,rate=7
dump-meters br0
-O OpenFlow13 del-meter br0 meter=3
-O OpenFlow13 del-meters br0
-O OpenFlow13 dump-meters br0
> -O OpenFlow13 add-group br0 group_id=1,type=select,bucket=weight=7,actions=output:1,bucket=output:2
--no-names -O OpenFlow13 dump-groups br0
--no-names dump-groups br0
-O OpenFlow13 dump-group-stats br0
-O OpenFlow11 dump-group-features br0
dump-group-features br0
-O OpenFlow13 mod-group br0 group_id=1,type=all
-O OpenFlow13 del-groups br0
> add-tlv-map br0 {class=0xffff,type=0,len=4}->tun_metadata0
dump-tlv-map br0
del-tlv-map br0
> replace-flows br0 -
> replace-flows br0 FILE
> --readd --bundle replace-flows br0 FILE
--no-names dump-flows br0
--no-names -O OpenFlow14 dump-flows br0
--no-names --no-stats dump-flows br0
--no-names --sort dump-flows br0
--no-names --rsort dump-flows br0
--no-names --sort=in_port --rsort=priority dump-flows br0
--sort=bogus dump-flows br0
dump-aggregate br0
diff-flows br0 FILE
-O OpenFlow13 diff-flows br0 OTHER
diff-flows OTHER FILE
diff-flows OTHER /nonexistent
--bundle add-flow br0 table=7,arp,actions=drop
--bundle -O OpenFlow13 mod-flows br0 table=7,actions=output:2
--no-names dump-flows br0 table=7
--bundle add-flow br0 table=4,actions=group:77
ct-flush br0
ct-flush br0 zone=5
ct-flush br0 zone=5 ct_nw_src=10.1.1.1,ct_nw_proto=17,ct_tp_src=1
ct-flush br0 ct_nw_src=10.1.1.1,ct_nw_proto=17 ct_nw_src=1.1.1.1
ct-flush br0 ct_nw_src=x
ct-flush br0 foo=1
ct-flush-zone br0 7
ct-flush-zone br0 x
ping br0 8
ping br0 99999
probe brx
bundle br0 /nonexistent
monitor br0 foo
monitor br0 watch:bogus=1
monitor br0 watch:!bogus
--read-only del-flows br0
--read-only dump-flows br0
foo br0
show
show br0 x
add-meter br0
ofp-print 0105000800000002
ofp-print 01
ofp-print zz
ofp-print 010a00200000000500000000000e00030100ffffffffffff5054000000010806 3
print-error OFPBRC_BAD_TYPE
print-error OFPBRC_BAD_TIPE
encode-hello 0x12
compose-packet arp
compose-packet udp,nw_src=1.2.3.4 0102
parse-key-value a=b,c(d),e:f
encode-error-reply OFPBRC_BAD_TYPE 0100000800000001
del-flows br0
";
const INPUT: &str = "table=20,ip,actions=output:2\n\
    priority=0,actions=NORMAL\n\
    priority=7,in_port=1,actions=output:2\n\
    priority=7,in_port=2,actions=output:1\n\
    cookie=9,table=1,arp,idle_timeout=500,actions=output:1\n";

const CHANGED: &str = "table=20,ip,actions=output:3\n\
    priority=0,actions=NORMAL\n\
    priority=7,in_port=1,send_flow_rem,actions=output:2\n\
    table=30,udp,hard_timeout=9,actions=resubmit(,31)\n";

#[test]
fn output_equals_the_stock_tool() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    for (name, text) in [("FILE", INPUT), ("OTHER", CHANGED)] {
        std::fs::write(stock.dir.join(name), text).unwrap();
    }
    let [file, other] = ["FILE", "OTHER"].map(|name| stock.dir.join(name).display().to_string());
    let mut wrong = Vec::new();
    for line in LINES.lines() {
        let line = line.replace("FILE", &file).replace("OTHER", &other);
        match line.strip_prefix("> ") {
            Some(line) => {
                let out = stock.ours(line, INPUT);
                assert!(
                    out.status.success() && out.stdout.is_empty(),
                    "{line}: {}{}",
                    out.stdout,
                    out.stderr
                );
            }
            None => wrong.extend(compare(&stock, &line, INPUT)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Output of a monitor while commands run, until it has the text `end`.
fn seen(stock: &Stock, program: &str, args: &[&str], act: &[&str], end: &str) -> Vec<String> {
    let cmd = match program {
        "sluice" => sluice().env("OVS_RUNDIR", stock.dir.path()).args(["ofctl"]),
        _ => stock.dir.tool("ovs-ofctl", None),
    };
    let running = cmd.args(args).spawn().unwrap();
    let run = |line: &str| {
        let out = stock.theirs(line, "");
        assert!(out.status.success(), "{line}: {}", out.stderr);
    };
    let all = || act.iter().for_each(|line| run(line));
    let poke: (&dyn Fn(), _) = (&|| run(POKE), "in_port=2 (via");
    let text = testkit::monitored(&running, poke, all, end, Duration::from_secs(20)).unwrap();
    plain(&(running.stdout() + &text))
}

const POKE: &str = "packet-out br0 in_port=2,packet=ffffffffffffaa55aa55000208060001080006040001000000000000000000000000000000000000,actions=controller";
const PACKET: &str = "ffffffffffffaa55aa55000308004500002a00000000401100000a0000010a000002000100020016\
    00000000000000000000000000000000000000000000";

#[test]
fn monitors_print_the_same() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let out = format!("packet-out br0 in_port=1,packet={PACKET},actions=controller");
    let act = [
        "add-flow br0 table=3,cookie=7,idle_timeout=9,tcp,actions=output:1",
        "mod-flows br0 table=3,tcp,actions=output:2",
        "mod-port br0 p1 no-flood",
        "mod-port br0 p1 flood",
        "add-flow br0 table=4,udp,actions=drop",
        "del-flows br0",
        &out,
    ];
    for args in [
        &["--no-names", "monitor", "br0", "65534"][..],
        &["--no-names", "monitor", "br0", "65534", "watch:"],
        &["--no-names", "monitor", "br0", "65534", "watch:!delete,table=3,tcp"],
        &["--no-names", "-O", "OpenFlow13", "monitor", "br0", "128", "watch:table=3"],
        &["--no-names", "-O", "OpenFlow14", "-m", "monitor", "br0", "128", "watch:!own,out_port=2"],
        &["--no-names", "-P", "standard", "monitor", "br0", "128", "invalid_ttl"],
        &["--no-names", "-P", "nxt_packet_in", "-m", "monitor", "br0", "128"],
    ] {
        let [ours, theirs] =
            ["sluice", "ovs-ofctl"].map(|program| seen(&stock, program, args, &act, "nw_src=10.0.0.1"));
        assert_eq!(ours, theirs, "{args:?}");
        assert!(ours.len() > 4, "{ours:?}");
    }
}

#[test]
fn rules_come_from_the_standard_input_and_are_compared_as_sent() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let rules = || plain(&stock.theirs("--no-names --no-stats dump-flows br0", "").stdout);
    let done = |line: &str, input: &str| {
        let out = stock.ours(line, input);
        assert!(out.status.success(), "{line}: {}{}", out.stdout, out.stderr);
    };
    done("add-flow br0 -", "table=1,ip,actions=drop\ntable=2,ip,actions=drop\n");
    done("mod-flows br0 -", "# one\ntable=2,actions=output:1\n");
    done("del-flows br0 -", "table=1,ip\n");
    assert_eq!(rules(), [" table=2, ip actions=output:1"]);
    let wrong = stock.ours("del-flows br0 -", "table=2,foo=1\n");
    assert!(wrong.stderr.starts_with("sluice ofctl: -:1: unknown keyword foo"), "{}", wrong.stderr);
    done("del-flows br0", "");
    let file = "actions=set_field:1->reg0,mod_vlan_vid:5,output:1\npriority=7,actions=note:01,output:2\n";
    for version in ["OpenFlow10", "OpenFlow13"] {
        done(&format!("-O {version} replace-flows br0 -"), file);
        done(&format!("-O {version} diff-flows br0 -"), file);
    }
}

/// Contents of a transaction's file: a command each, or the addition.
const TRANSACTION: &str = "flow add table=3,ip,actions=drop\n\
    flow table=3,arp,actions=drop # the same\n\
    group add group_id=5,type=all,bucket=output:1\n\
    flow delete table=3,ip\n\
    packet-out in_port=1,packet=ffffffffffff0011223344550806,actions=output:2\n";

#[test]
fn transactions_take_effect_as_a_whole() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let rules = || plain(&stock.theirs("--no-names --no-stats dump-flows br0", "").stdout);
    let done = stock.ours("bundle br0 -", TRANSACTION);
    assert!(done.status.success(), "{}", done.stderr);
    assert_eq!(rules(), [" table=3, arp actions=drop"]);
    for (line, input, error) in [
        (
            "bundle br0 -",
            "flow table=4,ip,actions=drop\nflow table=4,actions=group:77\n",
            "OFPBAC_BAD_OUT_GROUP",
        ),
        (
            "bundle br0 -",
            "flow table=4,ip,actions=drop\nflwo actions=drop\n",
            "-:2: Unsupported bundle message type: flwo (did you mean 'flow'?)",
        ),
        (
            "-O OpenFlow13 --bundle add-flows br0 -",
            "table=4,udp,actions=drop\ntable=4,actions=group:77\n",
            "OFPBAC_BAD_OUT_GROUP",
        ),
    ] {
        let out = stock.ours(line, input);
        assert!(!out.status.success() && out.stderr.contains(error), "{line}: {}", out.stderr);
        assert_eq!(rules().len(), 1, "{line}");
    }
}

#[test]
fn json_has_what_the_text_has() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    stock.theirs("-O OpenFlow13 add-meter br0 meter=1,pktps,stats,bands=type=drop,rate=9", "");
    stock.theirs("-O OpenFlow13 add-group br0 group_id=1,type=all,bucket=output:1", "");
    for (line, expected) in [
        (
            "--json -O OpenFlow13 dump-meters br0",
            "[{\"meter\":1,\"unit\":\"pktps\",\"burst\":false,\"stats\":true,\"bands\":[{\"type\":\"drop\",\"rate\":9,",
        ),
        ("--json -O OpenFlow13 meter-stats br0", "\"meter\":1,\"flow_count\":0,\"packets\":0"),
        ("--json -O OpenFlow13 dump-groups br0", "\"watch_group\":null,\"actions\":\"output:1\""),
        ("--json -O OpenFlow13 dump-group-stats br0", "\"group_id\":1,\"ref_count\":0,\"packets\":0"),
        ("--json queue-stats br0", "\"queue\":0,\"tx_bytes\":null"),
        ("--json dump-tables br0", "{\"table\":253,\"active\":0,\"lookup\":0,\"matched\":0}]"),
        ("--json dump-ports-desc br0 p1", "\"port\":1,\"name\":\"p1\""),
        ("--json --names dump-ports br0 p2", "\"port\":\"p2\""),
    ] {
        let out = stock.ours(line, "");
        assert!(out.stdout.contains(expected), "{line}: {}{}", out.stdout, out.stderr);
    }
}

/// Copies of messages of several versions, behind a greeting.
const COPIES: [&str; 6] = [
    "0100000800000001",
    "0110000c0000000200000000",
    "0402000a000000036869",
    "0415000800000007",
    "010100140000000800010001010000080000000a",
    "0163000800000005",
];

/// Serves these messages on `br0.snoop` of a directory, to each client that comes.
fn copies(dir: &Path) {
    let listener = UnixListener::bind(dir.join("br0.snoop")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let hex = COPIES.concat();
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
            stream.write_all(&bytes).unwrap();
            // Until the client has gone.
            let _ended = stream.read_to_end(&mut Vec::new());
        }
    });
}

#[test]
fn snooping_prints_the_same() {
    require_programs!("ovs-ofctl");
    let dir = RunDir::new("snoop").unwrap();
    copies(dir.path());
    let [ours, theirs] = ["sluice", "ovs-ofctl"].map(|program| {
        let cmd = match program {
            "sluice" => sluice().env("OVS_RUNDIR", dir.path()).args(["ofctl"]),
            _ => dir.tool("ovs-ofctl", None),
        };
        let running = cmd.args(["snoop", "br0"]).spawn().unwrap();
        let last = "01 63 00 08";
        wait_for(Duration::from_secs(20), "the last message", || running.stderr().contains(last)).unwrap();
        // Without warnings of the stock tool about the unknown message.
        let text = running.stderr();
        plain(&text).into_iter().filter(|line| !line.contains("|WARN|")).collect::<Vec<_>>()
    });
    assert_eq!(ours, theirs);
    assert!(ours.len() > 5, "{ours:?}");
}

#[test]
fn rules_have_colours_and_messages_a_log() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let rule = "add-flow br0 table=1,priority=3,tcp,in_port=1,actions=load:5->reg1,resubmit(,2)";
    assert!(stock.theirs(rule, "").status.success());
    for line in [
        "--color=always --no-stats dump-flows br0",
        "--color=never --no-stats dump-flows br0",
        "--color --no-stats dump-flows br0",
        "--color=always parse-flow tcp,in_port=1,actions=ct(commit,zone=5),NORMAL,dec_ttl,output:2,clone(drop)",
        "--color=always dump-ports br0",
        "--color=sometimes dump-flows br0",
        "-vfoo dump-flows br0",
    ] {
        assert_eq!(compare(&stock, line, ""), None);
    }
    let log = stock.dir.join("ofctl.log");
    let out = stock.ours(&format!("-vvconn:file:dbg --log-file={} dump-flows br0", log.display()), "");
    assert!(out.status.success(), "{}", out.stderr);
    let text = std::fs::read_to_string(&log).unwrap();
    for part in ["|vconn|DBG|br0: sent (Success): ", "|vconn|DBG|br0: received: ", "FLOW"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn monitors_go_into_the_background() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let pidfile = stock.dir.join("monitor.pid");
    let out =
        stock.ours(&format!("monitor br0 65534 --detach --no-chdir --pidfile={}", pidfile.display()), "");
    assert!(out.status.success(), "{}", out.stderr);
    // It is connected already.
    let pid: i32 = std::fs::read_to_string(&pidfile).unwrap().trim().parse().unwrap();
    let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(command.contains("monitor"), "{command}");
    assert!(Cmd::new("kill").args([&pid.to_string()]).run().is_ok());
    wait_for(Duration::from_secs(20), "its end", || !Path::new(&format!("/proc/{pid}")).exists()).unwrap();
    for (line, error) in [
        ("show br0 --detach", "--detach is for commands that last"),
        ("monitor br1 --detach", "br1 is not a bridge or a socket"),
    ] {
        let out = stock.ours(line, "");
        assert!(!out.status.success() && out.stderr.contains(error), "{line}: {}", out.stderr);
    }
}

/// Bytes of pairs of hexadecimal digits.
fn bytes_of(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// A capture of these TCP segments to port 6653, in the format of libpcap.
fn capture_of(segments: &[&[u8]]) -> Vec<u8> {
    let mut out = bytes_of("a1b2c3d4000200040000000000000000000000ff00000001".trim_end());
    out[16..20].copy_from_slice(&65_535u32.to_be_bytes());
    let mut seq = 1u32;
    for payload in segments {
        let mut frame = bytes_of("0200000000020200000000010800");
        let len = (40 + payload.len()) as u16;
        frame.extend(bytes_of("4500"));
        frame.extend(len.to_be_bytes());
        frame.extend(bytes_of("000000004006000001010101020202020bb819fd"));
        frame.extend(seq.to_be_bytes());
        frame.extend(bytes_of("00000000501001000000"));
        frame.extend(bytes_of("0000"));
        frame.extend(*payload);
        seq += payload.len() as u32;
        out.extend([0; 8]);
        out.extend((frame.len() as u32).to_be_bytes());
        out.extend((frame.len() as u32).to_be_bytes());
        out.extend(frame);
    }
    out
}

#[test]
fn messages_of_files_and_captures_print_the_same() {
    require_programs!("ovs-ofctl");
    let dir = RunDir::new("parse").unwrap();
    let messages = bytes_of(&COPIES.concat());
    let (file, cut, pcap) = (dir.join("messages"), dir.join("cut"), dir.join("tcp.pcap"));
    std::fs::write(&file, &messages).unwrap();
    std::fs::write(&cut, &messages[..messages.len() - 3]).unwrap();
    // Segments that end within messages.
    std::fs::write(&pcap, capture_of(&[&messages[..11], &messages[11..30], &messages[30..]])).unwrap();
    for (verb, path) in [("ofp-parse", &file), ("ofp-parse-pcap", &pcap), ("ofp-parse", &cut)] {
        let [ours, theirs] = ["sluice", "ovs-ofctl"].map(|program| {
            let cmd = match program {
                "sluice" => sluice().args(["ofctl"]),
                _ => dir.tool("ovs-ofctl", None),
            };
            cmd.args([verb, path.to_str().unwrap()]).output().unwrap()
        });
        assert!(!ours.stdout.is_empty(), "{verb}: {}", ours.stderr);
        assert_eq!((ours.stdout, ours.status.code()), (theirs.stdout, theirs.status.code()), "{verb}");
    }
}

/// One command a line, in order. `x-1` is printed in quotes.
const TABLES: &str = "\
add-flow br0 table=acl,in_port=1,actions=resubmit(,x-1)
add-flow br0 table=1,in_port=2,actions=learn(table=acl,in_port=5),resubmit(1,\"x-1\")
add-flow br0 table=\"x-1\",ip,actions=ct(table=acl)
-O OpenFlow13 add-flow br0 actions=goto_table:acl
add-flow br0 table=nosuch,actions=drop
dump-flows br0
--names dump-flows br0
--names dump-flows br0 table=acl
dump-flows br0 table=acl
--names dump-aggregate br0 table=x-1
--names -O OpenFlow13 dump-flows br0
--names -O OpenFlow14 dump-table-desc br0
--names --no-stats -O OpenFlow15 dump-flows br0
-O OpenFlow14 mod-table br0 acl evict
-O OpenFlow14 mod-table br0 nosuch evict
-O OpenFlow13 mod-table br0 3 name:third
-O OpenFlow15 mod-table br0 third name:third
-O OpenFlow15 mod-table br0 3 name:x-3
-O OpenFlow13 mod-table br0 1 name:other
mod-table br0 3 name:third
--names add-flow br0 table=x-3,actions=drop
--names dump-flows br0 table=3
-O OpenFlow13 mod-table br0 \"x-3\" name:x-3
-O OpenFlow13 mod-table br0 3 name:
--names dump-flows br0 table=3
del-flows br0 table=acl
--names dump-flows br0
";

#[test]
fn tables_have_names() {
    require_programs!("ovs-vswitchd", "ovs-vsctl", "ovs-ofctl");
    let stock = Stock::start();
    let named = "-- set bridge br0 flow_tables:1=@a flow_tables:2=@b -- --id=@a create Flow_Table name=acl \
        -- --id=@b create Flow_Table name=x-1";
    stock.dir.ovs("ovs-vsctl", &named.split_whitespace().collect::<Vec<_>>()).unwrap();
    let wrong: Vec<String> = TABLES.lines().filter_map(|line| compare(&stock, line, "")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let hinted = stock.ours("add-flow br0 table=ac1,actions=drop", "").stderr;
    assert!(hinted.contains("unknown table \"ac1\""), "{hinted}");
}
