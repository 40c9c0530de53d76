//! Clients that send many requests and close the stream: all are executed, and answered if the client reads.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use testkit::{Daemon, Netns, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, start, vsctl};

/// More than one turn of any client type.
const REQUESTS: usize = 3000;

/// Connects and sends all data from a separate thread; half-closes or closes.
fn send(path: &PathBuf, bytes: Vec<u8>, then_reads: bool) -> Vec<u8> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(testkit::patience(LIMIT))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        // A client that closes at once may be disconnected while sending.
        let sent = writer.write_all(&bytes);
        if then_reads {
            sent.unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        }
    });
    let mut answers = Vec::new();
    if then_reads {
        (&stream).read_to_end(&mut answers).unwrap();
    }
    drop(stream);
    sender.join().unwrap();
    answers
}

/// Transactions that each add a key to the switch's `external_ids`.
fn transactions(tag: &str) -> Vec<u8> {
    let mut all = String::new();
    for n in 0..REQUESTS {
        let mutation = format!(r#"["external_ids","insert",["map",[["{tag}{n}","x"]]]]"#);
        let _ = write!(
            all,
            r#"{{"id":{n},"method":"transact","params":["Open_vSwitch",{{"op":"mutate","table":"Open_vSwitch","where":[],"mutations":[{mutation}]}}]}}"#
        );
    }
    all.into_bytes()
}

fn control_socket(daemon: &Daemon) -> PathBuf {
    daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", daemon.pid()))
}

#[test]
fn transactions_sent_before_eof_are_executed() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let netns = Netns::new("sw").unwrap();
    let daemon = start(&netns);
    let socket = daemon.rundir().join("db.sock");
    let count =
        |tag: &str| vsctl(&daemon, "get Open_vSwitch . external_ids").matches(&format!("{tag}-")).count();
    let answers = String::from_utf8(send(&socket, transactions("half-"), true)).unwrap();
    assert_eq!(answers.matches(r#"{"count":1}"#).count(), REQUESTS);
    assert_eq!(count("half"), REQUESTS);
    send(&socket, transactions("full-"), false);
    wait_for(LIMIT * 3, "all transactions of one that left", || count("full") == REQUESTS).unwrap();
    // Long replies, read late.
    let schemas = r#"{"id":1,"method":"get_schema","params":["Open_vSwitch"]}"#.repeat(1000);
    let answers = String::from_utf8(send(&socket, schemas.into_bytes(), true)).unwrap();
    assert_eq!(answers.matches(r#""error":null"#).count(), 1000);
    // A waiting transaction is aborted with the stream.
    let wait = r#"{"id":1,"method":"transact","params":["Open_vSwitch",{"op":"wait","table":"Open_vSwitch","where":[],"columns":["external_ids"],"until":"==","rows":[{"external_ids":["map",[]]}]}]}"#;
    assert!(send(&socket, wait.as_bytes().to_vec(), true).is_empty());
}

#[test]
fn commands_sent_before_eof_are_executed() {
    require_netns!();
    require_programs!("ovs-appctl");
    let netns = Netns::new("sw").unwrap();
    let daemon = start(&netns);
    let socket = control_socket(&daemon);
    let version = r#"{"id":1,"method":"version","params":[]}"#.repeat(REQUESTS);
    let answers = String::from_utf8(send(&socket, version.into_bytes(), true)).unwrap();
    assert_eq!(answers.matches("3.5.4").count(), REQUESTS);
    let level = |n: usize| {
        let level = if n.is_multiple_of(2) { "dbg" } else { "info" };
        format!(r#"{{"id":{n},"method":"vlog/set","params":["bridge:file:{level}"]}}"#)
    };
    // As many as OVS reads at once: of those that leave it executes no more.
    let mut commands: String = (0..50).map(level).collect();
    commands += r#"{"id":0,"method":"vlog/set","params":["bridge:file:err"]}"#;
    send(&socket, commands.into_bytes(), false);
    let is_set = || {
        let list = appctl(&daemon, "vlog/list");
        list.lines().any(|line| line.starts_with("bridge ") && line.trim_end().ends_with("ERR"))
    };
    wait_for(LIMIT, "the last command of one that left", is_set).unwrap();
}

/// An OpenFlow 1.0 message.
fn message(ty: u8, xid: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, ty];
    bytes.extend(u16::try_from(8 + body.len()).unwrap().to_be_bytes());
    bytes.extend(u32::try_from(xid).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A hello, and flow-mods each followed by a barrier.
fn flow_mods(first: u32) -> Vec<u8> {
    let mut all = message(0, 0, &[]);
    for n in 0..REQUESTS {
        let mut rule = (0x3f_ffff_u32 & !0x10 & !(0x3f << 14)).to_be_bytes().to_vec();
        rule.resize(22, 0);
        rule.extend([8, 0]);
        rule.resize(32, 0);
        rule.extend((first + u32::try_from(n).unwrap()).to_be_bytes());
        rule.resize(54, 0);
        rule.extend([0, 100, 255, 255, 255, 255, 255, 255, 0, 0]);
        rule.resize(64, 0);
        all.extend(message(14, n + 1, &rule));
        all.extend(message(18, n + 1, &[]));
    }
    all
}

#[test]
fn flow_mods_sent_before_eof_are_executed() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let netns = Netns::new("sw").unwrap();
    let daemon = start(&netns);
    vsctl(&daemon, "add-br br0 -- set bridge br0 fail_mode=secure");
    let socket = daemon.rundir().join("br0.mgmt");
    wait_for(LIMIT, "the bridge's socket", || testkit::listens(&socket)).unwrap();
    let rules = || {
        let list = daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
        list.matches("nw_dst=").count()
    };
    let answers = send(&socket, flow_mods(0x0a00_0000), true);
    // A hello and the barriers.
    let hello_bytes = usize::from(u16::from_be_bytes([answers[2], answers[3]]));
    assert_eq!(answers.len(), hello_bytes + 8 * REQUESTS);
    assert_eq!(rules(), REQUESTS);
    send(&socket, flow_mods(0x0a10_0000), false);
    wait_for(LIMIT, "all rules of one that left", || rules() == 2 * REQUESTS).unwrap();
    // More replies than one turn handles, read after all requests are sent.
    let mut asks = message(0, 0, &[]);
    let dump = [&[0, 1, 0, 0][..], &0x3f_ffff_u32.to_be_bytes(), &[0; 36], &[0xff, 0, 0xff, 0xff]].concat();
    (0..20).for_each(|n| asks.extend(message(16, n, &dump)));
    let answers = send(&socket, asks, true);
    assert!(answers.len() > 20 * 2 * REQUESTS * 88, "{}", answers.len());
}
