use super::*;
use crate::config::CtZoneConfig;
use dpif::TimeoutAttr;

/// `ZONE limit=N|udp=N ...; ...`, with `default` for the limit of others.
fn config(text: &str) -> Arc<CtConfig> {
    let mut config = CtConfig::default();
    for zone in text.split(';').map(str::trim).filter(|z| !z.is_empty()) {
        let mut words = zone.split(' ');
        let name = words.next().unwrap();
        let mut settings = CtZoneConfig::default();
        for (key, n) in words.map(|w| w.split_once('=').unwrap()) {
            let n = n.parse().unwrap();
            match key {
                "limit" => settings.limit = Some(n),
                _ => settings.timeouts.set(TimeoutAttr::of_key(&format!("{key}_first")).unwrap(), n),
            }
        }
        match name {
            "default" => config.default_limit = settings.limit,
            zone => {
                config.zones.insert(zone.parse().unwrap(), settings);
            }
        }
    }
    Arc::new(config)
}

fn id(n: u32) -> TimeoutId {
    TimeoutId(n.try_into().unwrap())
}

/// A step in short form.
fn short(step: &ZoneStep) -> String {
    let zone = |zone: &CtZone| match zone {
        CtZone::Default => "default".to_string(),
        CtZone::Zone(n) => n.to_string(),
    };
    let all = |parts: Vec<String>| parts.join(" ");
    match step {
        ZoneStep::SetPolicy(id, p) => {
            format!("policy {}: {}", id.0, all(p.iter().map(|(a, s)| format!("{}={s}", a.key())).collect()))
        }
        ZoneStep::Assign(zones) => {
            format!("assign {}", all(zones.iter().map(|(z, id)| format!("{z}:{}", id.0)).collect()))
        }
        ZoneStep::SetLimits(set) => {
            format!("limit {}", all(set.iter().map(|(z, n)| format!("{}={n}", zone(z))).collect()))
        }
        ZoneStep::RemoveLimits(zones) => format!("unlimit {}", all(zones.iter().map(zone).collect())),
    }
}

/// Executes all steps but those that begin with `failing`.
fn settle(planner: &mut ZonePlanner, text: &str, failing: &str) -> Vec<String> {
    planner.plan(config(text));
    let mut log = Vec::new();
    while let Some(step) = planner.next_step() {
        let said = short(&step);
        planner.done(step, failing.is_empty() || !said.starts_with(failing));
        log.push(said);
    }
    assert!(planner.is_settled());
    log
}

fn leaving(planner: &ZonePlanner) -> Vec<u32> {
    planner.leaving().iter().map(|id| id.0.get()).collect()
}

#[test]
fn only_differences_become_steps() {
    let mut planner = ZonePlanner::default();
    let none: [&str; 0] = [];
    for (text, steps, unused) in [
        ("", &none[..], &[][..]),
        ("default limit=9; 5 limit=3", &["limit default=9 5=3"], &[]),
        ("default limit=9; 5 limit=3", &none, &[]),
        ("5 limit=4; 6 limit=0", &["unlimit default", "limit 5=4 6=0"], &[]),
        // One policy for both zones.
        (
            "5 limit=4 udp=7; 6 udp=7 limit=0; 9 icmp=2",
            &["policy 1: icmp_first=2", "policy 2: udp_first=7", "assign 5:2 6:2 9:1"],
            &[],
        ),
        ("5 limit=4 udp=7; 6 limit=0; 9 udp=7", &["assign 5:2 9:2"], &[1]),
        // The number of one that leaves is not free.
        ("5 limit=4 udp=8; 6 limit=0; 9 udp=7", &["policy 3: udp_first=8", "assign 5:3 9:2"], &[1]),
        ("", &["assign ", "unlimit 5 6"], &[1, 2, 3]),
        ("", &none, &[1, 2, 3]),
    ] {
        assert_eq!(settle(&mut planner, text, ""), steps, "{text}");
        assert_eq!(leaving(&planner), unused, "{text}");
    }
    planner.left(id(2));
    assert_eq!(settle(&mut planner, "1 udp=7", ""), ["policy 2: udp_first=7", "assign 1:2"]);
}

#[test]
fn failed_steps_come_again() {
    let mut planner = ZonePlanner::new([id(1)]);
    let text = "5 limit=3 udp=7; 6 icmp=4";
    assert_eq!(
        settle(&mut planner, text, "policy 3"),
        ["policy 2: icmp_first=4", "policy 3: udp_first=7", "assign 6:2", "limit 5=3"],
        "a zone whose policy failed has none"
    );
    assert_eq!(leaving(&planner), [1, 3]);
    planner.left(id(1));
    planner.left(id(3));
    assert_eq!(settle(&mut planner, text, ""), ["policy 1: udp_first=7", "assign 5:1 6:2"]);
    assert_eq!(settle(&mut planner, "5 limit=4", "limit"), ["assign ", "limit 5=4"]);
    assert_eq!(settle(&mut planner, "", "unlimit"), ["unlimit 5"]);
    assert_eq!(settle(&mut planner, "", ""), ["unlimit 5"]);
    assert_eq!(settle(&mut planner, "", ""), [""; 0]);
}

#[test]
fn many_limits_go_in_parts_and_a_new_plan_replaces_the_rest() {
    let mut planner = ZonePlanner::default();
    let text = |limit: u32| {
        let zones: Vec<_> =
            (0..1000).map(|zone| format!("{zone} limit={limit} udp={}", zone % 500 + 1)).collect();
        zones.join(";")
    };
    planner.plan(config(&text(1)));
    for _ in 0..100 {
        let step = planner.next_step().unwrap();
        assert!(matches!(step, ZoneStep::SetPolicy(..)));
        planner.done(step, true);
    }
    let steps = settle(&mut planner, &text(2), "");
    assert_eq!(steps.len(), 400 + 1 + 4);
    assert!(steps[0].starts_with("policy 101: "), "{}", steps[0]);
    assert!(steps.iter().all(|s| s.len() < 256 * 20 || s.starts_with("assign")));
}
