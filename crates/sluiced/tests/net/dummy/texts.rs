//! Texts about flows that the stock switch of the tests lacks, and replies as JSON.

use super::{FROM_5_TO_7, Lab};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use testkit::{require_netns, require_programs};

/// Sends requests on one connection to the control socket; returns the results or errors.
pub(super) fn session(lab: &Lab, requests: &[(&str, &[&str])]) -> Vec<Result<Value, Value>> {
    let socket = lab.daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", lab.daemon.pid()));
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(crate::helpers::LIMIT)).unwrap();
    let mut answers = Vec::new();
    for (n, (method, params)) in requests.iter().enumerate() {
        stream
            .write_all(json!({ "id": n, "method": method, "params": params }).to_string().as_bytes())
            .unwrap();
        let mut bytes = Vec::new();
        let answer: Value = loop {
            let mut part = [0; 65536];
            let read = match stream.read(&mut part) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            assert!(read > 0, "the connection ended");
            bytes.extend(&part[..read]);
            if let Ok(answer) = serde_json::from_slice(&bytes) {
                break answer;
            }
        };
        answers.push(if answer["error"].is_null() {
            Ok(answer["result"].clone())
        } else {
            Err(answer["error"].clone())
        });
    }
    answers
}

#[test]
fn replies_are_json_after_set_options() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let answers = session(
        &lab,
        &[
            ("version", &[]),
            ("set-options", &["--format", "json"]),
            ("version", &[]),
            ("list-commands", &[]),
            ("dpif/show", &[]),
            ("fdb/show", &["nope"]),
            ("revalidator/wait", &[]),
            ("set-options", &["--format", "text"]),
            ("version", &[]),
        ],
    );
    let version = "ovs-vswitchd (Open vSwitch) 3.5.4\n";
    let plain = |text: &str| Ok(json!({ "reply-format": "plain", "reply": text }));
    assert_eq!(answers[0], Ok(json!(version)));
    assert_eq!(answers[2], plain(version));
    let commands = answers[3].as_ref().unwrap();
    assert_eq!(commands["ofproto/list"], "");
    assert_eq!(commands["set-options"], "[--format text|json]");
    let shown = answers[4].as_ref().unwrap();
    let datapath = &shown["dummy@ovs-dummy"];
    assert_eq!(datapath["stats"], json!({ "hit": "0", "missed": "0" }));
    let port = json!({ "port_no": "7", "ofport": "3", "type": "dummy" });
    assert_eq!(datapath["bridges"]["br0"]["p7"], port);
    assert_eq!(datapath["bridges"]["br0"]["br0"]["ofport"], "65534");
    // Errors are text, and replies that wait have the format of their request.
    assert_eq!(answers[5], Err(json!("no such bridge\n")));
    assert_eq!(answers[6], plain(""));
    assert_eq!(answers[8], Ok(json!(version)));
    // Other clients are unaffected.
    assert_eq!(lab.appctl("version"), version);
}

#[test]
fn detrace_names_the_rules_and_groups_of_a_flow() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.ofctl(&[
        "-O",
        "OpenFlow13",
        "add-group",
        "br0",
        "group_id=5,type=all,bucket=output:2,bucket=output:3",
    ]);
    lab.ofctl(&["add-flow", "br0", "priority=7,cookie=0x12,actions=resubmit(,1)"]);
    lab.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "table=1,actions=group:5"]);
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    let verbose = lab.appctl("dpctl/dump-flows -m");
    let ufid = verbose.split("ufid:").nth(1).unwrap().split(',').next().unwrap();
    let expected = "\
cookie=0x12, duration=0s, n_packets=1, n_bytes=14, priority=7,actions=resubmit(,1)
table_id=1, duration=0s, n_packets=1, n_bytes=14, actions=group:5
group_id=5,type=all,bucket=bucket_id:0,actions=output:2,bucket=bucket_id:1,actions=output:3
";
    for line in [format!("ufid:{ufid}"), format!("{ufid} pmd=-1")] {
        assert_eq!(lab.appctl(&format!("ofproto/detrace {line}")), expected, "{line}");
    }
    // Other threads, and other flows, have nothing to tell.
    for line in [format!("{ufid} pmd=3"), format!("{ufid} pmd=2147483647"), "ufid:1".to_string()] {
        assert_eq!(lab.appctl(&format!("ofproto/detrace {line}")), "", "{line}");
    }
}

/// Statistics of rules are the same when rounds of the revalidator read whole flows.
#[test]
fn whole_flows_are_read_without_ufids() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "priority=7,actions=2"]);
    assert_eq!(lab.appctl("upcall/disable-ufid"), "Datapath dumping tersely using UFID disabled\n");
    assert!(lab.appctl("upcall/show").contains("  ufid enabled : false\n"));
    for n in 1..=3 {
        lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
        lab.appctl("time/warp 100");
        lab.appctl("revalidator/wait");
        assert_eq!(lab.n_packets("priority=7"), n);
    }
    lab.appctl("upcall/enable-ufid");
    assert!(lab.appctl("upcall/show").contains("  ufid enabled : true\n"));
}

/// Features that are switched off are used by no translation; earlier flows are deleted, as in OVS.
#[test]
fn features_of_the_datapath_can_be_switched_off() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "actions=output(port=2,max_len=20)"]);
    let flow = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
    let actions = || {
        let dump = lab.appctl("dpctl/dump-flows");
        dump.split("actions:").nth(1).unwrap_or_default().trim().to_string()
    };
    lab.receive("p1", &flow);
    assert_eq!(actions(), "trunc(20),2");
    assert_eq!(lab.appctl("dpif/set-dp-features br0 trunc false"), "");
    assert_eq!(actions(), "");
    lab.receive("p1", &flow);
    assert_eq!(actions(), "userspace(pid=0,slow_path(action))");
    // Features of the datapath are shown as before.
    assert!(lab.appctl("dpif/show-dp-features br0").contains("Truncate action: Yes"));
    // The same value changes nothing.
    assert_eq!(lab.appctl("dpif/set-dp-features br0 trunc false"), "");
    assert_eq!(actions(), "userspace(pid=0,slow_path(action))");
    assert_eq!(lab.appctl("dpif/set-dp-features br0 trunc true"), "");
    lab.receive("p1", &flow);
    assert_eq!(actions(), "trunc(20),2");
}
