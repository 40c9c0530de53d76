//! Metrics for Prometheus: their names, their values, the setting, and programs of others that read them.

use crate::helpers::{
    BROADCAST, Frame, LIMIT, TOOLS, appctl, ping_all, require_userspace, send, start, switch, vsctl, wait_log,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use testkit::{Daemon, Netns, require_netns, require_programs, wait_for};

/// Names and labels that exporters of OVS have, without coverage counters and forwarding threads.
const NAMES: &str = "
ovs_build_info db_version,dpdk_version,ovs_version
ovs_bridge_flow_count bridge,datapath_type
ovs_bridge_port_count bridge,datapath_type
ovs_datapath_flows_total name,type
ovs_datapath_lookup_hits_total name,type
ovs_datapath_lookup_missed_total name,type
ovs_datapath_lookup_lost_total name,type
ovs_interface_rx_bytes bridge,interface,port,type
ovs_interface_rx_packets bridge,interface,port,type
ovs_interface_rx_errors bridge,interface,port,type
ovs_interface_rx_dropped bridge,interface,port,type
ovs_interface_tx_bytes bridge,interface,port,type
ovs_interface_tx_packets bridge,interface,port,type
ovs_interface_tx_errors bridge,interface,port,type
ovs_interface_admin_state bridge,interface,port,type
ovs_interface_link_state bridge,interface,port,type
ovs_interface_link_resets bridge,interface,port,type
ovs_interface_link_speed_bps bridge,interface,port,type
ovs_interface_mtu_bytes bridge,interface,port,type
ovs_coverage_netlink_sent_total
ovs_coverage_drop_action_of_pipeline_total
ovs_coverage_datapath_drop_meter_total
ovs_coverage_conntrack_full_total
ovs_coverage_flow_extract_total
ovs_memory_handlers_total
ovs_memory_keys_total
ovs_memory_ports_total
ovs_memory_revalidators_total
ovs_memory_rules_total
ovs_pmd_emc_hits cpu,numa
ovs_pmd_smc_hits cpu,numa
ovs_pmd_megaflow_hits cpu,numa
ovs_pmd_simple_match_hits cpu,numa
ovs_pmd_total_upcalls cpu,numa
ovs_pmd_lost_upcalls cpu,numa
ovs_pmd_busy_iterations cpu,numa
ovs_pmd_idle_iterations cpu,numa
ovs_pmd_sleep_iterations cpu,numa
ovs_up
ovs_info db_version,hostname,ovs_version,rundir,system_id,system_type,system_version
ovs_dp_flows datapath,system_id
ovs_dp_lookups_hit datapath,system_id
ovs_dp_lookups_missed datapath,system_id
ovs_dp_lookups_lost datapath,system_id
ovs_dp_masks_hit datapath,system_id
ovs_dp_masks_total datapath,system_id
ovs_dp_masks_hit_ratio datapath,system_id
ovs_dp_br_if_total bridge,datapath,system_id
ovs_coverage_total component,event,system_id
ovs_memory_usage component,facility,system_id
ovs_db_file_size component,filename,system_id
ovs_log_file_size component,filename,system_id
ovs_log_event_count component,severity,system_id
sluice_upcall_seconds_bucket le,stage
sluice_main_loop_seconds_bucket le
sluice_main_loop_longest_seconds part
sluice_main_loop_part_seconds_total part
sluice_connections datapath
sluice_drops_total datapath,reason
sluice_port_drops_total bridge,interface,reason
";

type Labels = BTreeMap<String, String>;

/// A sample: its name, labels and value.
#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

/// Reads labels strictly: `name="value",…` with the escapes `\\`, `\"` and `\n`; returns the text after `}`.
fn labels(text: &str) -> (Labels, &str) {
    let (mut found, mut rest) = (Labels::new(), text);
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{text}");
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(found.insert(name.to_string(), value).is_none(), "{text}");
        match after[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None => return (found, after[end + 1..].strip_prefix('}').unwrap()),
        }
    }
}

/// Reads a text strictly: each family is named once, with help, a type and samples of that name, each once.
fn parse(text: &str) -> Vec<Sample> {
    let (mut all, mut families, mut seen) = (Vec::<Sample>::new(), BTreeSet::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split_once(' ').unwrap().0.to_string();
            assert!(families.insert(family.clone()), "{family} occurs twice");
            kind.clear();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            kind = rest.strip_prefix(&format!("{family} ")).unwrap().to_string();
            assert!(["counter", "gauge", "histogram"].contains(&kind.as_str()), "{line}");
        } else {
            let name_end = line.find(['{', ' ']).unwrap();
            let (name, rest) = line.split_at(name_end);
            let (labels, rest) = rest.strip_prefix('{').map_or((Labels::new(), rest), labels);
            let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{name} in {family}"));
            let expected: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(expected.contains(&suffix), "{line}");
            assert!(seen.insert((name.to_string(), labels.clone())), "{line} occurs twice");
            let value: f64 = rest.trim_start().parse().unwrap();
            all.push(Sample { name: name.to_string(), labels, value });
        }
    }
    all
}

/// Sum of the samples of a name with these labels; `None` without any.
fn sum(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let fits = |s: &&Sample| {
        s.name == name && labels.iter().all(|(l, v)| s.labels.get(*l).is_some_and(|other| other == v))
    };
    let mut found = samples.iter().filter(fits).peekable();
    found.peek().is_some().then(|| found.map(|s| s.value).sum())
}

fn ask(mut stream: impl std::io::Read + std::io::Write) -> Option<String> {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    Some(body.to_string())
}

fn socket(daemon: &Daemon) -> std::path::PathBuf {
    daemon.rundir().join("metrics.sock")
}

fn serve_at_socket(daemon: &Daemon) {
    vsctl(daemon, &format!("set Open_vSwitch . other_config:metrics=unix:{}", socket(daemon).display()));
}

fn scrape(daemon: &Daemon) -> Vec<Sample> {
    let path = socket(daemon);
    wait_for(LIMIT, "the socket of metrics", || testkit::listens(&path)).unwrap();
    parse(&ask(UnixStream::connect(path).unwrap()).unwrap())
}

/// At an address in a namespace; `None`: nobody answers.
fn scrape_at(netns: &Netns, address: &str) -> Option<Vec<Sample>> {
    let text = netns.enter(|| ask(TcpStream::connect(address).ok()?)).unwrap();
    text.map(|text| parse(&text))
}

#[test]
fn metrics_have_the_names_of_exporters_and_the_values_of_the_database() {
    require_userspace!("forwarding threads have metrics");
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1], "ovs-ofctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    // The time of upcalls counts from here on.
    serve_at_socket(&daemon);
    scrape(&daemon);
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=9,dl_type=0x88b5,actions=drop"]).unwrap();
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=8,icmp,actions=ct(commit),normal"]).unwrap();
    send(one, &[Frame { to: BROADCAST, from: "02:00:00:00:00:77", vlan: None }; 5]);
    ping_all(&one.netns, two.ipv4.into(), 10);
    let port = [("bridge", "br0"), ("interface", one.port.as_str())];
    let mut samples = Vec::new();
    wait_for(LIMIT, "drops and upcalls", || {
        samples = scrape(&daemon);
        let dropped =
            sum(&samples, "sluice_port_drops_total", &[port[0], port[1], ("reason", "rules")]) == Some(5.0);
        let all = |stage| sum(&samples, "sluice_upcall_seconds_count", &[("stage", stage)]).unwrap_or(0.0);
        dropped && ["wait", "translate", "install"].into_iter().all(|stage| all(stage) >= 3.0)
    })
    .unwrap();
    for line in NAMES.lines().filter(|line| !line.is_empty()) {
        let (name, wanted) = line.split_once(' ').unwrap_or((line, ""));
        let sample = samples.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name} is missing"));
        let labels: Vec<&str> = sample.labels.keys().map(String::as_str).collect();
        assert_eq!(labels.join(","), wanted, "{name}");
    }
    // Values.
    let value = |name, labels: &[(&str, &str)]| sum(&samples, name, labels).unwrap();
    assert_eq!(value("ovs_bridge_flow_count", &[("bridge", "br0")]), 3.0);
    assert!(value("sluice_connections", &[]) >= 1.0);
    assert_eq!(value("ovs_bridge_port_count", &[("bridge", "br0"), ("datapath_type", "netdev")]), 3.0);
    assert_eq!(value("ovs_interface_link_state", &port), 1.0);
    assert_eq!(value("ovs_interface_mtu_bytes", &port), 1500.0);
    assert!(value("ovs_interface_rx_packets", &port) >= 15.0);
    assert_eq!(value("ovs_dp_br_if_total", &[("bridge", "br0")]), 3.0);
    assert_eq!(value("sluice_drops_total", &[("reason", "rules")]), 5.0);
    assert_eq!(value("sluice_ineffective_settings", &[]), 0.0);
    assert_eq!(value("sluice_metrics_left_out", &[]), 0.0);
    let system_id = vsctl(&daemon, "get Open_vSwitch . external_ids:system-id");
    assert_eq!(value("ovs_info", &[("system_id", system_id.trim_matches('"'))]), 1.0);
    // The shared counters have one source.
    let shown = appctl(&daemon, "memory/show");
    assert!(shown.contains(&format!("ports:{}", value("ovs_memory_ports_total", &[]))), "{shown}");
    assert!(shown.contains(&format!("rules:{}", value("ovs_memory_rules_total", &[]))), "{shown}");
    // The counters of a port are those of other reports, once nothing is sent.
    wait_for(LIMIT, "equal counters", || {
        let status: serde_json::Value = serde_json::from_str(&appctl(&daemon, "sluice/status")).unwrap();
        let samples = scrape(&daemon);
        let ports = status["bridges"][0]["ports"].as_array().unwrap();
        let told = ports.iter().find(|p| p["name"] == one.port.as_str()).unwrap();
        ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"]
            .into_iter()
            .all(|name| sum(&samples, &format!("ovs_interface_{name}"), &port) == told[name].as_f64())
    })
    .unwrap();
}

#[test]
fn the_address_of_metrics_changes_at_run_time() {
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1]);
    let netns = Netns::new("metrics").unwrap();
    netns.up("lo").unwrap();
    let daemon = start(&netns);
    let set = |value: &str| vsctl(&daemon, &format!("set Open_vSwitch . other_config:metrics=\"{value}\""));
    let notices = || -> Vec<String> {
        let status: serde_json::Value = serde_json::from_str(&appctl(&daemon, "sluice/status")).unwrap();
        let all = status["ineffective"].as_array().unwrap().iter();
        let of_metrics = all.filter(|setting| setting["setting"] == "other_config:metrics");
        of_metrics.map(|setting| setting["message"].as_str().unwrap().to_string()).collect()
    };
    let told = |text: &str| {
        wait_for(LIMIT, text, || notices().iter().any(|notice| notice.contains(text))).unwrap();
    };
    assert_eq!(notices(), [""; 0]);
    serve_at_socket(&daemon);
    assert_eq!(sum(&scrape(&daemon), "ovs_up", &[]), Some(1.0));
    // Another address takes the place of the first.
    set("[::1]:9105");
    wait_for(LIMIT, "the new address", || scrape_at(&netns, "[::1]:9105").is_some()).unwrap();
    assert!(!socket(&daemon).exists());
    // Wrong values end it, with a reason.
    for (value, reason) in [
        ("localhost:9105", "neither ADDRESS:PORT"),
        ("127.0.0.1", "neither ADDRESS:PORT"),
        ("127.0.0.1:0", "the port cannot be 0"),
        ("unix:metrics.sock", "an absolute path"),
        ("192.0.2.77:9105", "cannot be served at http://192.0.2.77:9105/metrics"),
        ("unix:/nonexistent/metrics", "cannot be served at unix:/nonexistent/metrics"),
    ] {
        set(value);
        told(reason);
    }
    wait_for(LIMIT, "the end of the former address", || scrape_at(&netns, "[::1]:9105").is_none()).unwrap();
    // An address in use is tried again.
    let other = netns.enter(|| std::net::TcpListener::bind("127.0.0.1:9106").unwrap()).unwrap();
    set("127.0.0.1:9106");
    told("Address already in use");
    wait_log(&daemon, "metrics cannot be served at http://127.0.0.1:9106/metrics: Address already in use");
    drop(other);
    wait_for(LIMIT, "another try", || scrape_at(&netns, "127.0.0.1:9106").is_some()).unwrap();
    assert_eq!(notices(), [""; 0]);
    vsctl(&daemon, "remove Open_vSwitch . other_config metrics");
    wait_for(LIMIT, "the end", || scrape_at(&netns, "127.0.0.1:9106").is_none()).unwrap();
}

/// Queries of two public dashboards: OpenStack's for hosts with forwarding threads, and one for the exporter whose metrics have
/// `system_id`. `$instance` and `$__rate_interval` are those of the test; `type="dpdk"` is that of its ports.
const QUERIES: &str = r#"
ovs_bridge_flow_count{bridge="br0",instance="$instance"}
rate(ovs_coverage_netlink_sent_total{instance="$instance"}[5s])
(ovs_pmd_busy_iterations{instance="$instance"} / (ovs_pmd_busy_iterations{instance="$instance"} + ovs_pmd_idle_iterations{instance="$instance"}) * 100)
rate(ovs_pmd_tx_packets{instance="$instance"}[5s])
rate(ovs_pmd_rx_packets{instance="$instance"}[5s])
rate(ovs_interface_tx_packets{type="system",instance="$instance"}[5s])
rate(ovs_interface_rx_packets{type="system",instance="$instance"}[5s])
rate(ovs_interface_rx_dropped[5s]) + rate(ovs_interface_tx_dropped[5s]) >= 0
rate(ovs_interface_rx_bytes[5s]) * 8
ovs_up
ovs_dp_flows
ovs_dp_lookups_hit / (ovs_dp_lookups_hit + ovs_dp_lookups_missed)
rate(ovs_coverage_total{event=~".*drop.*"}[5s])
ovs_info * on(system_id) group_left ovs_dp_br_if_total or ovs_dp_br_if_total
topk(5, increase(sluice_port_drops_total[5s]))
histogram_quantile(0.99, rate(sluice_upcall_seconds_bucket[5s]))
"#;

#[test]
fn prometheus_scrapes_the_switch_and_dashboards_find_their_names() {
    require_userspace!("forwarding threads have metrics");
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1], "ovs-ofctl", "ping");
    // A large package: only the long check needs it.
    if !testkit::long() {
        return;
    }
    require_programs!("prometheus", "promtool", "curl");
    let (net, daemon) = switch(2);
    net.switch.up("lo").unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let address = "127.0.0.1:9105";
    vsctl(&daemon, &format!("set Open_vSwitch . other_config:metrics={address}"));
    wait_for(LIMIT, "metrics", || scrape_at(&net.switch, address).is_some()).unwrap();
    // The checker of others finds no error in the text; its advice about names concerns those of exporters.
    let text = net.switch.enter(|| ask(TcpStream::connect(address).unwrap()).unwrap()).unwrap();
    let checked = net.switch.cmd("promtool").args(["check", "metrics"]).input(text).output().unwrap();
    assert!(!checked.stderr.contains("error while linting"), "{}", checked.stderr);
    let own = checked.stderr.lines().filter(|line| line.starts_with("sluice_"));
    assert_eq!(own.collect::<Vec<_>>(), [""; 0]);
    let folder = daemon.rundir().join("prometheus");
    std::fs::create_dir(&folder).unwrap();
    let config = folder.join("prometheus.yml");
    let jobs = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: sluice\n    static_configs:\n      - targets: ['{address}']\n"
    );
    std::fs::write(&config, jobs).unwrap();
    let arguments = [
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        "--web.listen-address=127.0.0.1:9090".to_string(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let _prometheus = net.switch.spawn("prometheus", &arguments).unwrap();
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=9,dl_type=0x88b5,actions=drop"]).unwrap();
    let query = |query: &str| -> Vec<serde_json::Value> {
        let query = format!("query={}", query.replace("$instance", address));
        let url = "http://127.0.0.1:9090/api/v1/query";
        let out = net.switch.cmd("curl").args(["-s", "--data-urlencode", &query, url]).output().unwrap();
        let reply: serde_json::Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        assert!(reply.is_null() || reply["status"] == "success", "{reply}");
        reply["data"]["result"].as_array().cloned().unwrap_or_default()
    };
    for line in QUERIES.lines().filter(|line| !line.is_empty()) {
        wait_for(LIMIT, line, || {
            send(one, &[Frame { to: BROADCAST, from: "02:00:00:00:00:77", vlan: None }; 5]);
            ping_all(&one.netns, two.ipv4.into(), 2);
            !query(line).is_empty()
        })
        .unwrap();
    }
    assert_eq!(query("up{job=\"sluice\"}")[0]["value"][1], "1");
}

/// Ports of the measured switch.
fn many() -> usize {
    if testkit::long() { 2000 } else { 200 }
}

#[test]
fn a_scrape_of_many_ports_costs_the_main_loop_little() {
    require_userspace!("dummies are not of the kernel");
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1]);
    let netns = Netns::new("metrics").unwrap();
    let daemon = crate::helpers::spec(&netns).args(["--enable-dummy=override"]).start().unwrap();
    let mut line = "add-br br0 -- set Bridge br0 datapath_type=dummy".to_string();
    for n in 0..many() {
        line += &format!(" -- add-port br0 p{n} -- set Interface p{n} type=dummy");
    }
    vsctl(&daemon, &line);
    serve_at_socket(&daemon);
    let mut costs = Vec::new();
    let mut is_cheap = || {
        let samples = scrape(&daemon);
        assert_eq!(sum(&samples, "ovs_memory_ports_total", &[]), Some(many() as f64 + 1.0));
        // Facts are gathered anew after half a second.
        std::thread::sleep(std::time::Duration::from_millis(510));
        costs.push(sum(&samples, "sluice_metrics_main_loop_seconds", &[]).unwrap());
        // Debug assertions and other tests beside this one: far above the measured time.
        costs.len() >= 5 && costs.iter().any(|cost| *cost < 0.02)
    };
    wait_for(LIMIT, "a scrape within 20 ms of the main loop", &mut is_cheap).unwrap();
    println!("{} ports: {costs:?} s of the main loop", many());
}
