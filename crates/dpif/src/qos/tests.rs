use super::*;

mod scheduler;

const VETH: LinkFacts = LinkFacts { mtu: 1500, speed_bps: 10_000_000_000 };

/// Expected values are classes that OVS made.
#[test]
fn classes_are_those_of_ovs() {
    let htb = Discipline::Htb { max_rate: 1_000_000_000 };
    let check = |discipline: Discipline, queue: Queue, min_rate, max_rate, burst| {
        let expected = Class { min_rate, max_rate, burst, priority: queue.priority };
        assert_eq!(discipline.class(&queue, VETH), Some(expected), "{queue:?}");
    };
    let q = Queue {
        min_rate: 1_000_000,
        max_rate: 20_000_000,
        burst: 1_000_000,
        priority: 3,
        ..Queue::default()
    };
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
    for name in ALL_TYPES {
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
    for kbps in [1, 10, 1000, 10_000, 1_000_000] {
        if kbps < 1000 {
            // A frame each 9 microseconds brings few tokens.
            let limits = Policing { kbps, ..Policing::default() };
            near(passed(limits, 1, 1, 9).1, kbps * 125);
            continue;
        }
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

/// Bytes that pass a policer in a second from each queue; a frame of each queue is offered in each interval.
fn policed(discipline: Discipline, queues: &[(u32, Rates)], bytes: u64, every_us: u64) -> Vec<u64> {
    let rows = queues.iter().map(|(n, rates)| (*n, Queue { rates: *rates, ..Queue::default() }));
    let qos = Qos { discipline, queues: rows.collect() };
    let (mut policer, faults) = EgressPolicer::new(&qos, None, 0).unwrap();
    assert_eq!(faults, [""; 0]);
    let mut passed = vec![0; queues.len()];
    for now_us in (0..1_000_000).step_by(every_us as usize) {
        policer.fill(now_us);
        for ((queue, _), passed) in queues.iter().zip(&mut passed) {
            *passed += if policer.admit(*queue, 1, bytes + 14) { bytes } else { 0 };
        }
    }
    passed
}

#[test]
fn egress_policers_keep_their_rates() {
    let near = |got: u64, wanted: u64| {
        assert!(got.abs_diff(wanted) * 50 <= wanted, "{got} instead of {wanted}");
    };
    for cir in [125_000, 1_250_000, 125_000_000, 625_000_000] {
        // An interval in which three times the rate is offered.
        let every_us = (1_500_000_000 / cir / 3).max(1);
        let rates = Rates { cir, cbs: 2048, ..Rates::default() };
        let egress = Discipline::EgressPolicer { cir, cbs: 2048 };
        near(policed(egress, &[(0, Rates::default())], 1500.min(cir / 100_000), every_us.min(2))[0], cir);
        near(policed(Discipline::Trtcm(rates), &[(0, Rates::default())], 1000, 1)[0], cir);
    }
    // A frame that is longer than the burst never passes.
    assert_eq!(
        policed(Discipline::EgressPolicer { cir: 125_000, cbs: 99 }, &[(0, Rates::default())], 100, 9),
        [0]
    );
}

/// The example of stock switches: one queue has the committed rate, the other one shares the excess.
#[test]
fn queues_of_a_marker_have_priority_by_colour() {
    let two = |cir, cbs, eir, ebs| Rates { cir, cbs, eir, ebs };
    let port = Discipline::Trtcm(two(52_000, 2048, 52_000, 2048));
    let queues = [(10, two(41_600_000, 2048, 0, 0)), (20, two(0, 0, 41_600_000, 2048))];
    let [high, low] = policed(port, &queues, 50, 3)[..] else { panic!("two queues") };
    assert!((50_000..110_000).contains(&high) && high + low <= 110_000, "{high} {low}");
    // Alone, the low one has the excess only.
    let [low] = policed(port, &queues[1..], 50, 3)[..] else { panic!("one queue") };
    assert!(low.abs_diff(54_000) < 2000, "{low}");
}

#[test]
fn policers_refuse_what_is_missing_and_keep_their_counters() {
    let new = |discipline, queues: &[(u32, Rates)], earlier| {
        let rows = queues.iter().map(|(n, rates)| (*n, Queue { rates: *rates, ..Queue::default() }));
        EgressPolicer::new(&Qos { discipline, queues: rows.collect() }, earlier, 5000)
    };
    let refusal = |discipline| new(discipline, &[], None).err().unwrap();
    assert_eq!(refusal(Discipline::EgressPolicer { cir: 0, cbs: 1 }), "egress-policer: cir must not be 0");
    assert_eq!(refusal(Discipline::EgressPolicer { cir: 1, cbs: 0 }), "egress-policer: cbs must not be 0");
    let rates = Rates { cir: 1, cbs: 0, eir: 1, ebs: 1 };
    assert_eq!(refusal(Discipline::Trtcm(rates)), "trtcm-policer: cir needs cbs, the bytes of a burst");
    assert_eq!(refusal(Discipline::Noop), "linux-noop is not a policer");

    let port = Rates { cir: 1000, cbs: 1000, eir: 0, ebs: 0 };
    let none = Rates { cir: 0, cbs: 0, eir: 9, ebs: 0 };
    let (mut policer, faults) = new(Discipline::Trtcm(port), &[(7, port), (8, none)], None).unwrap();
    assert_eq!(faults, ["queue 8: eir needs ebs, the bytes of a burst"]);
    let numbers = |p: &EgressPolicer| p.queues(8000).iter().map(|q| q.queue).collect::<Vec<_>>();
    assert_eq!(numbers(&policer), [0, 7]);
    // A queue that does not exist is the default one, which has the rates of the port.
    assert_eq!([8, 0, 7].map(|queue| policer.admit(queue, 1, 614)), [true, false, false]);
    let shown = "QoS: p trtcm-policer\ncir: 1000\neir: 0\nebs: 0\ncbs: 1000\n
Default:\n  cir: 1000\n  eir: 0\n  ebs: 0\n  cbs: 1000\n  tx_packets: 1\n  tx_bytes: 600\n  tx_errors: 1\n
Queue 7:\n  cir: 1000\n  eir: 0\n  ebs: 0\n  cbs: 1000\n  tx_packets: 1\n  tx_bytes: 600\n  tx_errors: 0\n";
    assert_eq!(policer.shown().text("p"), shown);
    let (policer, _) = new(Discipline::Trtcm(port), &[(7, none), (9, port)], Some(policer)).unwrap();
    assert_eq!(numbers(&policer), [0, 9]);
    assert_eq!(
        policer.queues(8000)[0],
        QueueStats { queue: 0, tx_packets: 1, tx_bytes: 600, tx_errors: 1, age_ms: Some(3) }
    );
    // Without a default queue, packets of unknown queues are dropped.
    let (mut policer, _) = new(Discipline::Trtcm(port), &[(0, none)], Some(policer)).unwrap();
    assert!(numbers(&policer).is_empty() && !policer.admit(0, 1, 20));
    let (policer, _) = new(Discipline::EgressPolicer { cir: 5, cbs: 6 }, &[], Some(policer)).unwrap();
    assert_eq!(policer.shown().text("p"), "QoS: p egress-policer\ncir: 5\ncbs: 6\n");
}
