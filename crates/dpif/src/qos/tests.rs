use super::*;

const VETH: LinkFacts = LinkFacts { mtu: 1500, speed_bps: 10_000_000_000 };

/// Expected values are classes that OVS made.
#[test]
fn classes_are_those_of_ovs() {
    let htb = Discipline::Htb { max_rate: 1_000_000_000 };
    let check = |discipline: Discipline, queue: Queue, min_rate, max_rate, burst| {
        let expected = Class { min_rate, max_rate, burst, priority: queue.priority };
        assert_eq!(discipline.class(&queue, VETH), Some(expected), "{queue:?}");
    };
    let q = Queue { min_rate: 1_000_000, max_rate: 20_000_000, burst: 1_000_000, priority: 3, dscp: None };
    check(htb, q, 125_000, 2_500_000, 125_000);
    check(htb, Queue { min_rate: 100, ..Queue::default() }, 1500, 125_000_000, 1564);
    check(htb, Queue::default(), 1500, 125_000_000, 1564);
    check(htb, Queue { max_rate: 1, ..Queue::default() }, 1500, 1500, 1564);
    check(htb, Queue { min_rate: 1 << 40, ..Queue::default() }, 125_000_000, 125_000_000, 1564);
    check(Discipline::Hfsc { max_rate: 0 }, Queue::default(), 1, 1_250_000_000, 1564);
    let root = Class { min_rate: 125_000_000, max_rate: 125_000_000, burst: 0, priority: 0 };
    assert_eq!(htb.root(VETH), Some(root));
    let unknown = LinkFacts { mtu: 1500, speed_bps: 0 };
    assert_eq!(Discipline::Htb { max_rate: 7 }.root(unknown).map(|c| c.max_rate), Some(12_500_000));
    assert_eq!(Discipline::Noop.class(&q, VETH), None);
}

#[test]
fn each_type_has_its_defaults() {
    for name in TYPES {
        let discipline = Discipline::parse(name, |_| 0);
        assert_eq!(discipline.map(|d| d.name()), Some(name));
        // Each key is read, and only these.
        let mut asked = Vec::new();
        Discipline::parse(name, |key| {
            asked.push(key.to_string());
            u64::MAX
        });
        asked.sort();
        assert_eq!(asked, Discipline::keys(name), "{name}");
    }
    let codel = Discipline::Codel { target: 5000, limit: 10_240, interval: 100_000 };
    assert_eq!(Discipline::parse("linux-codel", |_| 0), Some(codel));
    assert_eq!(Discipline::parse("htb", |_| 0), None);
}

#[test]
fn text_of_qos_show() {
    let stats = |queue| QueueStats { queue, tx_packets: 1, tx_bytes: 2, tx_errors: u64::MAX, age_ms: None };
    let shown = ShownQos {
        discipline: Some("linux-htb".into()),
        settings: vec![("max-rate", "8".into())],
        queues: vec![(Vec::new(), stats(0)), (vec![("burst", "9".into())], stats(3))],
    };
    let text = "QoS: p1 linux-htb\nmax-rate: 8\n\nDefault:\n  tx_packets: 1\n  tx_bytes: 2\n\nQueue 3:\n  burst: 9\n  tx_packets: 1\n  tx_bytes: 2\n";
    assert_eq!(shown.text("p1"), text);
    assert_eq!(ShownQos::default().text("p1"), "QoS not configured on p1\n");
}

/// Packets and bytes that pass in a second, after the burst is gone; one frame is offered in each interval.
fn passed(limits: Policing, packets: u64, bytes: u64, every_us: u64) -> (u64, u64) {
    let mut policer = Policer::new(limits, 0).unwrap();
    while policer.admit(packets, bytes) {}
    let (mut sum, mut now_us) = ((0, 0), 0);
    while now_us < 1_000_000 {
        now_us += every_us;
        policer.fill(now_us);
        if policer.admit(packets, bytes) {
            sum = (sum.0 + packets, sum.1 + bytes);
        }
    }
    sum
}

#[test]
fn policers_keep_their_rates() {
    let near = |got: u64, wanted: u64| {
        assert!(got.abs_diff(wanted) * 50 <= wanted, "{got} instead of {wanted}");
    };
    for kbps in [1000, 10_000, 1_000_000] {
        let limits = Policing { kbps, ..Policing::default() };
        near(passed(limits, 1, 1500, 3).1, kbps * 125);
        // A large segment costs its packets and bytes.
        if kbps > 1000 {
            near(passed(limits, 43, 64_500, 13).1, kbps * 125);
        }
    }
    near(passed(Policing { kpps: 5, ..Policing::default() }, 1, 60, 7).0, 5000);
    near(passed(Policing { kpps: 5, ..Policing::default() }, 5, 7000, 7).0, 5000);
    // A segment larger than the burst passes once its first packet does.
    near(
        passed(Policing { kbps: 10_000, burst_kbits: 20, ..Policing::default() }, 43, 64_500, 7).1,
        1_250_000,
    );
    // The stricter one of both holds.
    near(passed(Policing { kbps: 8000, kpps: 100, ..Policing::default() }, 1, 1000, 5).0, 1000);
}

#[test]
fn bursts_have_the_defaults_of_ovs() {
    assert_eq!(Policer::new(Policing { burst_kbits: 9, ..Policing::default() }, 0), None);
    let mut policer = Policer::new(Policing { kbps: 1, ..Policing::default() }, 0).unwrap();
    assert!(policer.admit(1, 1_000_000) && !policer.admit(1, 1));
    let mut policer =
        Policer::new(Policing { kpps: 1, burst_kpackets: 2, ..Policing::default() }, 0).unwrap();
    assert!(policer.admit(2000, u64::MAX) && !policer.admit(1, 0));
    // A clock that goes back, or far ahead, is harmless.
    policer.fill(u64::MAX);
    policer.fill(0);
    assert!(policer.admit(2000, 1) && !policer.admit(1, 1));
}
