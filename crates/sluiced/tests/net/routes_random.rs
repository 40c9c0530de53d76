//! Random changes of routes, rules, next-hop objects, addresses and links: each lookup equals the kernel's.

use sim::Rng;
use testkit::{Daemon, Netns, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl_output, start};

/// Changes between two comparisons: single ones, and several in a row.
const CHANGES_MAX: u64 = 5;
/// Changes of a seed.
const CHANGES: usize = 120;

const DESTINATIONS: [&str; 10] = [
    "10.0.0.9",
    "10.9.1.1",
    "10.9.200.1",
    "10.8.0.1",
    "172.16.5.5",
    "8.8.8.8",
    "2001:db8:1::1",
    "2001:db8:2::1",
    "2001:cafe::9",
    "3fff::1",
];

const NETWORKS: [&str; 7] =
    ["10.9.0.0/16", "10.9.0.0/17", "10.9.1.0/24", "10.8.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "default"];
const NETWORKS6: [&str; 4] = ["2001:db8::/32", "2001:db8:1::/48", "2001:db8:2::1/128", "default"];
const HOPS: [&str; 6] = [
    "via 10.0.0.9",
    "via 10.0.1.9",
    "dev sl-c",
    "via inet6 2001:cafe::9 dev sl-a",
    "via 192.0.2.77 dev sl-c onlink",
    "dev sl-a",
];
const HOPS6: [&str; 4] =
    ["via 2001:cafe::9 dev sl-a", "via 2001:beef::9 dev sl-b", "via fe80::9 dev sl-c", "dev sl-a"];
const REFUSALS: [&str; 4] = ["blackhole", "unreachable", "prohibit", "throw"];

fn network() -> Netns {
    let netns = Netns::new("routes").unwrap();
    netns.up("lo").unwrap();
    netns.ip("addr add 192.0.2.1/32 dev lo").unwrap();
    netns.ip("addr add 2001:aaaa::1/128 dev lo").unwrap();
    for (device, peer) in [("sl-a", "sl-x"), ("sl-b", "sl-y"), ("sl-c", "sl-z")] {
        netns.ip(&format!("link add name {device} type veth peer name {peer}")).unwrap();
        for end in [device, peer] {
            netns.ip(&format!("link set dev {end} addrgenmode none")).unwrap();
            netns.up(end).unwrap();
        }
    }
    netns.ip("addr add fe80::c/64 dev sl-c nodad").unwrap();
    addresses(&netns);
    netns
}

/// Adds missing addresses.
fn addresses(netns: &Netns) {
    for (device, address) in [
        ("sl-a", "10.0.0.1/24"),
        ("sl-b", "10.0.1.1/24"),
        ("sl-a", "2001:cafe::88/64 nodad"),
        ("sl-b", "2001:beef::88/64 nodad"),
    ] {
        let (address, flags) = address.split_once(' ').unwrap_or((address, ""));
        let _ = netns.ip(&format!("addr replace {address} dev {device} {flags}"));
    }
}

/// A random argument of ip(8). Some commands fail: they change nothing.
fn change(rng: &mut Rng) -> String {
    let mut one = |all: &[&str]| all[rng.below(all.len() as u64) as usize].to_string();
    let family = one(&["-4", "-4", "-6"]);
    let (network, hop, other) = match family.as_str() {
        "-4" => (one(&NETWORKS), one(&HOPS), one(&HOPS)),
        _ => (one(&NETWORKS6), one(&HOPS6), one(&HOPS6)),
    };
    let table = one(&["main", "main", "100"]);
    let metric = one(&["", "", "metric 50", "metric 60"]);
    let verb = one(&["add", "append", "replace", "add"]);
    let priority = one(&["100", "110", "120"]);
    let object = one(&["1", "2", "3"]);
    let source = match (family.as_str(), one(&["", "", "src"]).as_str()) {
        (_, "") => "",
        ("-4", _) => "src 192.0.2.1",
        _ => "src 2001:aaaa::1",
    };
    let tail = format!("table {table} {metric}");
    let to_dev = hop.contains("dev");
    match one(&[
        "route", "route", "route", "paths", "refusal", "del", "del", "rule", "nexthop", "link", "address",
    ])
    .as_str()
    {
        "route" => format!("{family} route {verb} {network} {hop} {tail} {source}"),
        "paths" => format!("{family} route {verb} {network} {tail} nexthop {hop} nexthop {other}"),
        "refusal" => format!("{family} route {verb} {} {network} {tail}", one(&REFUSALS)),
        "del" => format!("{family} route del {network} {} {tail}", one(&["", &hop])),
        "rule" => match one(&["del", "to", "from", "not", "suppress", "goto", "refuse", "mark"]).as_str() {
            "del" => format!("{family} rule del pref {priority}"),
            "to" => format!(
                "{family} rule add pref {priority} to {} table 100",
                network.replace("default", "all")
            ),
            "from" => format!("{family} rule add pref {priority} from 127.0.0.0/8 table 100"),
            "not" => format!("{family} rule add pref {priority} not fwmark 7 table 100"),
            "suppress" => format!("{family} rule add pref {priority} table main suppress_prefixlength 16"),
            "goto" => format!("{family} rule add pref {priority} goto 32766"),
            "mark" => format!("{family} rule add pref {priority} fwmark 7 table 100"),
            _ => format!(
                "{family} rule add pref {priority} to {} {}",
                network.replace("default", "all"),
                one(&REFUSALS[..3])
            ),
        },
        "nexthop" => match one(&["add", "group", "blackhole", "del", "use", "use"]).as_str() {
            "add" if to_dev => format!("{family} nexthop replace id {object} {hop}"),
            "add" => format!("{family} nexthop replace id {object} {hop} dev sl-a"),
            "group" => "nexthop replace id 9 group 1/2".to_string(),
            "blackhole" => format!("{family} nexthop replace id {object} blackhole"),
            "del" => format!("nexthop del id {object}"),
            _ => format!("{family} route {verb} {network} nhid {} {tail}", one(&["1", "2", "3", "9"])),
        },
        "link" => {
            format!("link set {} {}", one(&["sl-a", "sl-b", "sl-x", "sl-c"]), one(&["down", "up", "up"]))
        }
        _ => format!(
            "addr del {}",
            one(&["10.0.0.1/24 dev sl-a", "10.0.1.1/24 dev sl-b", "2001:beef::88/64 dev sl-b"])
        ),
    }
}

/// A next hop: source address, gateway and device.
type Answer = Option<(String, String, String)>;

fn word_after(text: &str, word: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    words.find(|w| *w == word)?;
    words.next().map(|next| if next == "inet6" { words.next().unwrap_or_default() } else { next }.to_string())
}

/// Output of `ip route get`; empty without a route.
fn route_get(netns: &Netns, arguments: &str) -> String {
    netns.ip(&format!("-o route get {arguments}")).unwrap_or_default()
}

fn of_kernel(netns: &Netns, to: &str) -> Answer {
    let text = route_get(netns, to);
    let device = word_after(&text, "dev").filter(|_| !REFUSALS.iter().any(|r| text.starts_with(r)));
    device.map(|device| {
        let source = word_after(&text, "src").unwrap_or_default();
        (source, word_after(&text, "via").unwrap_or("::".to_string()), device)
    })
}

fn of_switch(daemon: &Daemon, to: &str) -> Answer {
    let out = appctl_output(daemon, &format!("ovs/route/lookup {to}"));
    let words = |word| word_after(&out.stdout, word).unwrap_or_default();
    (out.status.code() == Some(0)).then(|| (words("src"), words("gateway"), words("dev")))
}

/// Whether there is a next hop.
///
/// # Errors
/// The answers differ.
fn compare(netns: &Netns, daemon: &Daemon, to: &str) -> Result<bool, String> {
    let (ours, theirs) = (of_switch(daemon, to), of_kernel(netns, to));
    if ours == theirs {
        return Ok(ours.is_some());
    }
    let routes = route_get(netns, &format!("fibmatch {to}"));
    let is_equal = match (&ours, &theirs) {
        // The kernel's choice among several next hops is a hash.
        (Some((_, gateway, device)), Some(_)) => {
            routes.split("nexthop").skip(1).filter(|hop| !hop.contains("dead")).any(|hop| {
                word_after(hop, "dev").as_ref() == Some(device)
                    && word_after(hop, "via").unwrap_or("::".to_string()) == *gateway
            })
        }
        // Without any source address it has no use.
        (None, Some((source, ..))) => source.is_empty(),
        _ => false,
    };
    let fault = || format!("{to}: {ours:?}, but the kernel has {theirs:?} of {routes}");
    is_equal.then_some(ours.is_some()).ok_or_else(fault)
}

#[test]
fn lookups_equal_those_of_the_kernel_after_random_changes() {
    require_netns!();
    require_programs!("ovs-appctl", "ovs-vsctl", "ip");
    let seeds = if testkit::long() { 1..=40 } else { 1..=1 };
    for seed in std::env::var("SLUICE_ROUTES_SEED").ok().and_then(|s| s.parse().ok()).map_or(seeds, |s| s..=s)
    {
        let netns = network();
        let daemon = start(&netns);
        let mut rng = Rng::new(seed);
        let mut commands: Vec<String> = Vec::new();
        let (mut applied, mut found) = (0, [0; 2]);
        while commands.len() < CHANGES {
            for _ in 0..1 + rng.below(CHANGES_MAX) {
                commands.push(change(&mut rng));
                applied += usize::from(netns.ip(&commands[commands.len() - 1]).is_ok());
            }
            if rng.below(5) == 0 {
                addresses(&netns);
            }
            let some = 3 * rng.below(3) as usize;
            let mut last = String::new();
            for to in &DESTINATIONS[some..some + 4] {
                let equal = wait_for(LIMIT, "equal answers", || match compare(&netns, &daemon, to) {
                    Err(fault) => {
                        last = fault;
                        false
                    }
                    Ok(is_found) => {
                        found[usize::from(is_found)] += 1;
                        true
                    }
                });
                assert!(equal.is_ok(), "seed {seed}: {last}\nafter {commands:#?}");
            }
        }
        let counts =
            format!("seed {seed}: {applied} changes; {} without and {} with a route", found[0], found[1]);
        assert!(applied > CHANGES / 3 && found.iter().all(|n| *n > CHANGES / 20), "{counts}");
        println!("{counts}");
    }
}
