//! Threads are confined to what their kind needs, while all of them work.

use testkit::{Cmd, Daemon, Topology, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, ping_all, require_userspace, spec, vsctl};

/// `CAP_NET_ADMIN` and `CAP_NET_RAW`, and those over files of other users (`linux/capability.h`).
const DEVICES: u64 = 1 << 12 | 1 << 13;
const FILES: u64 = 0b1011;

/// Capabilities of threads by the beginning of their name.
const KINDS: [(&str, u64); 11] = [
    ("bonds", DEVICES),
    ("ct_clean", 0),
    ("events", 0),
    ("exporters", 0),
    ("handler", DEVICES),
    ("link_protocols", DEVICES),
    ("metrics", 0),
    ("ovsdb-log", FILES),
    ("pmd-c", DEVICES),
    ("revalidator", DEVICES),
    ("rings", 0),
];

/// Facts of a thread, from its status in `/proc`.
#[derive(Debug)]
struct Facts {
    capabilities: u64,
    seccomp: u64,
    no_new_privileges: u64,
}

/// The threads but for the main one, with their names.
fn threads(daemon: &Daemon) -> Vec<(String, Facts)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let facts = tasks.flatten().filter_map(|task| {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        let (name, status) = (read("comm")?.trim().to_string(), read("status")?);
        let number = |field: &str, radix| {
            let text = status.lines().find_map(|line| line.strip_prefix(field))?.trim();
            u64::from_str_radix(text, radix).ok()
        };
        let facts = Facts {
            capabilities: number("CapEff:", 16)?,
            seccomp: number("Seccomp:", 10)?,
            no_new_privileges: number("NoNewPrivs:", 10)?,
        };
        (task.file_name().to_str()? != daemon.pid().to_string()).then_some((name, facts))
    });
    facts.collect()
}

/// A switch whose threads of nearly all kinds work.
fn busy_switch(args: &[&str]) -> (Topology, Daemon) {
    let net = Topology::new(4).unwrap();
    let daemon = spec(&net.switch).args(args.iter().copied()).start().unwrap();
    let [a, b, c, d] = &net.ports()[..] else { panic!("four ports") };
    vsctl(
        &daemon,
        &format!(
            "add-br br0 -- add-port br0 {a} -- add-port br0 {b} -- add-bond br0 bond0 {c} {d} bond_mode=active-backup \
             lacp=active other_config:lacp-fallback-ab=true -- set Open_vSwitch . other_config:pmd-cpu-mask=0x3 \
             other_config:metrics=127.0.0.1:9475 other_config:n-revalidator-threads=3 \
             -- --id=@n create NetFlow targets=\"127.0.0.1:2055\" -- set Bridge br0 netflow=@n"
        ),
    );
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=9,ip,actions=ct(commit),normal"]).unwrap();
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
    let scraped = || {
        let out = Cmd::new("curl").args(["-s", "http://127.0.0.1:9475/metrics"]).netns(&net.switch).run();
        out.is_ok_and(|out| out.stdout.contains("ovs_coverage_total"))
    };
    wait_for(LIMIT, "the metrics", scraped).unwrap();
    assert!(appctl(&daemon, "dpctl/dump-conntrack").contains("icmp"));
    (net, daemon)
}

#[test]
fn each_thread_is_confined_and_works() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ping", "curl");
    require_userspace!("the kernel forwards");
    let (_net, daemon) = busy_switch(&[]);
    if let Some(line) = daemon.log().lines().find(|line| line.contains("threads are not confined")) {
        return println!("SKIP: each_thread_is_confined_and_works: {line}");
    }
    assert!(daemon.log().contains("threads are confined to"), "{}", daemon.log());
    let (is_there, mut seen) = (|name: &str, kind: &str| name.starts_with(kind), threads(&daemon));
    // The thread that follows tracked connections starts within a second, and each confines itself as it starts.
    wait_for(LIMIT, "confined threads of each kind", || {
        seen = threads(&daemon);
        let is_confined = |facts: &Facts| (facts.seccomp, facts.no_new_privileges) == (2, 1);
        KINDS.iter().all(|(kind, _)| seen.iter().any(|(name, _)| is_there(name, kind)))
            && seen.iter().all(|(_, facts)| is_confined(facts))
    })
    .unwrap_or_else(|e| panic!("{e}: {seen:#?}"));
    for (name, facts) in &seen {
        if let Some((_, allowed)) = KINDS.iter().find(|(kind, _)| is_there(name, kind)) {
            assert_eq!(facts.capabilities & !allowed, 0, "{name}: {facts:?}");
        }
    }
    let status = appctl(&daemon, "sluice/status");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let expected = serde_json::json!({"calls": true, "files": true, "capabilities": true, "refused": 0});
    assert_eq!(status["confinement"], expected);
    // A thread that ends does so by allowed calls, too.
    daemon.stop().unwrap();
}

#[test]
fn no_self_confinement_leaves_all_threads_as_they_are() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ping", "curl");
    require_userspace!("the kernel forwards");
    let (_net, daemon) = busy_switch(&["--no-self-confinement"]);
    let main = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let own = |field: &str| main.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim();
    for (name, facts) in threads(&daemon) {
        assert_eq!(facts.seccomp.to_string(), own("Seccomp:"), "{name}");
        assert_eq!(format!("{:016x}", facts.capabilities), own("CapEff:"), "{name}");
    }
    let status = appctl(&daemon, "sluice/status");
    assert!(status.contains("\"capabilities\":false"), "{status}");
}
