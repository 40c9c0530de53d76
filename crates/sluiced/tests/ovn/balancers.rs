//! Load balancers: backends, health checks, affinity, hairpins.

use std::collections::BTreeSet;

use testkit::wait_for;

use crate::lab::{Kind, LIMIT, Lab, Machine};
use crate::sockets::{Server, ask, connect, serve};

/// Connections that certainly meet two backends: each chooses at random.
const MANY: usize = 40;

/// A client and two backends on two chassis, with servers `one` and `two` on port 8080.
fn network(kind: Kind) -> (Lab, [Machine; 3], [Server; 2]) {
    let lab = Lab::new(kind, 2);
    lab.network(1);
    lab.network(2);
    let machines = [lab.machine(0, 2, 11), lab.machine(0, 1, 11), lab.machine(1, 1, 12)];
    lab.sync();
    for to in &machines[1..] {
        machines[0].reaches(&to.ip);
    }
    let servers = [serve(&machines[1], 8080, "one"), serve(&machines[2], 8080, "two")];
    (lab, machines, servers)
}

/// Names of the backends that many connections meet; each connection must succeed.
fn met(client: &Machine, ip: &str, port: u16) -> BTreeSet<String> {
    (0..MANY).map(|_| connect(client, ip, port).unwrap()).collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|n| n.to_string()).collect()
}

pub(crate) fn load_balancers(kind: Kind) {
    let (lab, [client, one, _two], _servers) = network(kind);
    lab.nb("lb-add web 10.9.0.1:80 10.1.0.11:8080,10.1.0.12:8080 tcp \
         -- lb-add web6 [fd09::1]:80 [fd01::11]:8080,[fd01::12]:8080 tcp \
         -- lb-add dns 10.9.0.1:53 10.1.0.11:8080,10.1.0.12:8080 udp \
         -- lb-add closed 10.9.0.9:80 '' tcp -- set Load_Balancer closed options:reject=true");
    for balancer in ["web", "web6", "dns", "closed"] {
        for switch in ["n1", "n2"] {
            lab.nb(&format!("ls-lb-add {switch} {balancer}"));
        }
    }
    lab.sync();
    wait_for(LIMIT, "the balancer", || connect(&client, "10.9.0.1", 80).is_ok()).unwrap();
    wait_for(LIMIT, "the balancer of IPv6", || connect(&client, "fd09::1", 80).is_ok()).unwrap();
    let both = names(&["one", "two"]);
    assert_eq!(met(&client, "10.9.0.1", 80), both);
    assert_eq!(met(&client, "fd09::1", 80), both);
    let datagrams: BTreeSet<_> =
        (0..MANY).map(|_| String::from_utf8(ask(&client, "10.9.0.1", 53, b"?").unwrap()).unwrap()).collect();
    assert_eq!(datagrams, both);
    // A backend that meets itself: its own address is translated too.
    assert_eq!(met(&one, "10.9.0.1", 80), both);
    // Without backends: a reset.
    assert_eq!(connect(&client, "10.9.0.9", 80), Err(std::io::ErrorKind::ConnectionRefused));
    let groups = lab.chassis[0].ofctl("dump-groups br-int");
    assert!(groups.contains("type=select"), "{groups}");
    lab.apply("set Load_Balancer web vips='{\"10.9.0.1:80\"=\"10.1.0.12:8080\"}'");
    wait_for(LIMIT, "one backend", || met(&client, "10.9.0.1", 80) == names(&["two"])).unwrap();
}

pub(crate) fn health_checks(kind: Kind) {
    let (lab, [client, _one, two], servers) = network(kind);
    lab.nb(
        "lb-add web 10.9.0.1:80 10.1.0.11:8080,10.1.0.12:8080 tcp -- ls-lb-add n2 web -- ls-lb-add n1 web \
         -- set Load_Balancer web ip_port_mappings:10.1.0.11='\"n1h11:10.1.0.250\"' \
            ip_port_mappings:10.1.0.12='\"n1h12:10.1.0.250\"' \
         -- --id=@h create Load_Balancer_Health_Check vip='\"10.9.0.1:80\"' \
            options:interval=1 options:timeout=1 options:success_count=1 options:failure_count=2 \
         -- add Load_Balancer web health_check @h",
    );
    let state = |wanted: &[&str]| {
        let mut found: Vec<String> = lab
            .sb("--bare --columns=logical_port,status --format=csv --no-headings list Service_Monitor")
            .lines()
            .filter(|l| !l.is_empty())
            .map(str::to_string)
            .collect();
        found.sort();
        found == wanted
    };
    wait_for(LIMIT, "both online", || state(&["n1h11,online", "n1h12,online"])).unwrap();
    lab.sync();
    wait_for(LIMIT, "the balancer", || connect(&client, "10.9.0.1", 80).is_ok()).unwrap();
    assert_eq!(met(&client, "10.9.0.1", 80), names(&["one", "two"]));
    let [one_serves, two_serves] = servers;
    drop(two_serves);
    wait_for(LIMIT, "one offline", || state(&["n1h11,online", "n1h12,offline"])).unwrap();
    lab.sync();
    wait_for(LIMIT, "one backend", || {
        (0..MANY).all(|_| connect(&client, "10.9.0.1", 80).as_deref() == Ok("one"))
    })
    .unwrap();
    let _again = serve(&two, 8080, "two");
    wait_for(LIMIT, "both online again", || state(&["n1h11,online", "n1h12,online"])).unwrap();
    drop(one_serves);
}

pub(crate) fn affinity(kind: Kind) {
    let (lab, [client, ..], _servers) = network(kind);
    lab.apply(
        "lb-add web 10.9.0.1:80 10.1.0.11:8080,10.1.0.12:8080 tcp \
         -- set Load_Balancer web options:affinity_timeout=3 -- ls-lb-add n2 web",
    );
    wait_for(LIMIT, "the balancer", || connect(&client, "10.9.0.1", 80).is_ok()).unwrap();
    let learned = || {
        let flows = lab.chassis[0].ofctl("dump-flows br-int");
        // The rule that `learn` made matches the client; the one with the action does not.
        flows
            .lines()
            .any(|l| l.contains("nw_src=10.2.0.11") && l.contains("10.9.0.1") && !l.contains("learn("))
    };
    wait_for(LIMIT, "a learned rule", || connect(&client, "10.9.0.1", 80).is_ok() && learned()).unwrap();
    for _ in 0..3 {
        assert_eq!(met(&client, "10.9.0.1", 80).len(), 1, "one backend for a client");
    }
    wait_for(LIMIT, "the end of the affinity", || !learned()).unwrap();
    // After it, clients choose anew. The first packet of a choice is lost with OVN 23.03, on either switch.
    let chosen = || {
        let mut name = None;
        wait_for(LIMIT, "a backend", || {
            name = connect(&client, "10.9.0.1", 80).ok();
            name.is_some()
        })
        .unwrap();
        name
    };
    wait_for(LIMIT, "the other backend", || {
        let before = chosen();
        wait_for(LIMIT, "the end of the affinity", || !learned()).unwrap();
        chosen() != before
    })
    .unwrap();
}
