//! The scheduler in virtual time.

use super::*;
use proptest::prelude::*;

const LINK: LinkFacts = LinkFacts { mtu: 1500, speed_bps: 10_000_000_000 };

fn htb(max_rate: u64, queues: &[(u32, Queue)]) -> Qos {
    Qos { discipline: Discipline::Htb { max_rate }, queues: queues.iter().copied().collect() }
}

fn load(bytes: u64) -> Load {
    Load { packets: bytes.div_ceil(1514), bytes, memory: bytes as usize }
}

/// Offers of a queue: its number, bytes of a packet, and bits a second; `u64::MAX`: always some.
type Offer = (u32, u64, u64);

/// Bits a second that leave each queue, over a time. After each wait the scheduler is called late by up to `late_us`.
fn rates(qos: &Qos, offers: &[Offer], run_us: u64, late_us: u64) -> Vec<u64> {
    let mut scheduler = Scheduler::new(qos, LINK, 0).unwrap();
    let (mut now_us, mut offered, mut sent) = (0u64, vec![0u64; offers.len()], vec![0u64; offers.len()]);
    let (mut waiting, mut late) = (vec![0u64; offers.len()], 0u64);
    while now_us < run_us {
        for (place, (queue, bytes, bps)) in offers.iter().enumerate() {
            let due = bps.saturating_mul(now_us / 8) / 1_000_000;
            while (*bps == u64::MAX && waiting[place] < 4) || (*bps != u64::MAX && offered[place] < due) {
                offered[place] += bytes;
                if scheduler.push(*queue, load(*bytes), (place, *bytes), now_us).is_ok() {
                    waiting[place] += 1;
                }
            }
        }
        match scheduler.pop(now_us) {
            Next::Send((place, bytes)) => {
                waiting[place] -= 1;
                sent[place] += bytes;
            }
            Next::Wait(until_us) => {
                assert!(until_us > now_us);
                // Each call is late by another time.
                late = (late * 7 + 3) % (late_us + 1);
                // Offers at a rate come meanwhile.
                let soon =
                    if offers.iter().all(|offer| offer.2 == u64::MAX) { u64::MAX } else { now_us + 200 };
                now_us = (until_us + late).min(soon);
            }
            Next::Empty => now_us += 1 + late_us,
        }
    }
    sent.iter().map(|bytes| bytes * 8 * 1_000_000 / now_us).collect()
}

fn assert_near(got: u64, wanted: u64, percent: u64) {
    assert!(got.abs_diff(wanted) * 100 <= wanted * percent, "{got} instead of {wanted}");
}

#[test]
fn rates_hold_from_1_megabit_to_5_gigabit() {
    for mbps in [1, 10, 100, 1000, 5000] {
        let bps = mbps * 1_000_000;
        let run_us = if mbps < 10 { 20_000_000 } else { 1_000_000 };
        for bytes in [64, 1514, 60_000].into_iter().filter(|bytes| mbps < 5000 || *bytes > 64) {
            for late_us in [0, 60, 900] {
                // By the port's rate, and by the queue's.
                assert_near(rates(&htb(bps, &[]), &[(0, bytes, u64::MAX)], run_us, late_us)[0], bps, 4);
                let queue = Queue { max_rate: bps, ..Queue::default() };
                let qos = htb(10_000_000_000, &[(3, queue)]);
                assert_near(rates(&qos, &[(3, bytes, u64::MAX)], run_us, late_us)[0], bps, 4);
            }
        }
    }
}

#[test]
fn least_rates_are_kept_and_the_rest_goes_by_priority() {
    let queue = |min_rate, priority| Queue { min_rate, priority, ..Queue::default() };
    let always = |queue| (queue, 1514, u64::MAX);
    let mbps = 1_000_000;
    let qos =
        htb(100 * mbps, &[(1, queue(20 * mbps, 5)), (2, queue(30 * mbps, 1)), (3, queue(10 * mbps, 5))]);
    let got = rates(&qos, &[always(1), always(2), always(3)], 2_000_000, 80);
    for (got, wanted) in got.iter().zip([20, 70, 10]) {
        assert_near(*got, wanted * mbps, 5);
    }
    // Without the first one, the others share the rest by their quanta: 200,000 bytes at most, and a tenth of 10 Mb.
    let got = rates(&qos, &[always(1), always(3)], 2_000_000, 80);
    for (got, wanted) in got.iter().zip([20 + 43, 10 + 27]) {
        assert_near(*got, wanted * mbps, 5);
    }
    // One that sends less than its least rate loses nothing.
    let got = rates(&qos, &[(1, 1514, 5 * mbps), always(2)], 2_000_000, 80);
    for (got, wanted) in got.iter().zip([5, 95]) {
        assert_near(*got, wanted * mbps, 5);
    }
}

#[test]
fn an_idle_queue_saves_its_burst_and_no_more() {
    let queue = Queue { max_rate: 8_000_000, burst: 80_000, ..Queue::default() };
    let mut scheduler = Scheduler::new(&htb(0, &[(1, queue)]), LINK, 0).unwrap();
    let mut at_once = |now_us: u64| {
        (0..100).for_each(|n| assert_eq!(scheduler.push(1, load(1000), n, now_us), Ok(())));
        let sent = std::iter::from_fn(|| match scheduler.pop(now_us) {
            Next::Send(n) => Some(n),
            Next::Wait(_) | Next::Empty => None,
        });
        let sent = sent.count();
        scheduler.drain();
        sent
    };
    // The last one takes what is missing.
    assert_eq!([at_once(5), at_once(10_000_000)], [11, 11]);
}

#[test]
fn queues_are_bounded() {
    let mut scheduler = Scheduler::new(&htb(8, &[(1, Queue::default())]), LINK, 0).unwrap();
    let mut refused = 0;
    for n in 0..QUEUE_PACKETS_MAX + 7 {
        refused += usize::from(scheduler.push(1, load(100), n, 0) == Err(n));
    }
    assert_eq!((refused, scheduler.memory()), (7, QUEUE_PACKETS_MAX * 100));
    // Packets of unknown queues go to queue 0.
    while scheduler.push(99, load(65_000), 0, 0).is_ok() {}
    assert!(scheduler.memory() <= QUEUE_PACKETS_MAX * 100 + QUEUE_MEMORY_MAX);
    let stats = scheduler.queues(3000);
    let counted: Vec<_> = stats.iter().map(|q| (q.queue, q.tx_packets, q.tx_errors, q.age_ms)).collect();
    assert_eq!(counted, [(0, 0, 43, Some(3)), (1, 0, 7, Some(3))]);
    // A queue that goes gives its packets back; others keep theirs.
    assert_eq!(scheduler.set(&htb(80, &[]), LINK, 3000).len(), QUEUE_PACKETS_MAX);
    assert_eq!(scheduler.memory() / 65_000, QUEUE_MEMORY_MAX / 65_000);
    assert!(matches!(scheduler.pop(3000), Next::Send(0)));
    assert!(matches!(scheduler.pop(3000), Next::Wait(_)));
    assert_eq!(scheduler.drain().len(), QUEUE_MEMORY_MAX / 65_000 - 1);
    assert_eq!((scheduler.memory(), scheduler.pop(4000)), (0, Next::Empty));
}

#[test]
fn shown_settings_are_those_of_the_kernel() {
    let queue = Queue { min_rate: 1_000_000, max_rate: 20_000_000, priority: 3, ..Queue::default() };
    let scheduler = Scheduler::<()>::new(&htb(1_000_000_000, &[(1, queue)]), LINK, 0).unwrap();
    let counters = "  tx_packets: 0\n  tx_bytes: 0\n  tx_errors: 0\n";
    let text = format!(
        "QoS: p linux-htb\nmax-rate: 1000000000\n\nDefault:\n  burst: 12512\n  min-rate: 12000\n  max-rate: 1000000000\n{counters}\n\
         Queue 1:\n  burst: 12512\n  priority: 3\n  min-rate: 1000000\n  max-rate: 20000000\n{counters}"
    );
    assert_eq!(scheduler.shown().text("p"), text);
    let none = Qos { discipline: Discipline::Noop, queues: BTreeMap::new() };
    assert!(Scheduler::<()>::new(&none, LINK, 0).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// With any settings: no queue exceeds its most rate, the port keeps its own, each has its least rate if they fit,
    /// and packets of a queue stay in order.
    #[test]
    fn any_settings_keep_their_rates(
        settings in proptest::collection::vec((1u64..40, 1u64..200, 0u32..3, 64u64..20_000), 1..6),
        late_us in 0u64..400,
    ) {
        let mbps = 1_000_000;
        let queues: Vec<(u32, Queue)> = (1..).zip(&settings).map(|(number, (min, more, priority, _))| {
            let queue = Queue {
                min_rate: min * mbps,
                max_rate: (min + more) * mbps,
                priority: *priority,
                ..Queue::default()
            };
            (number, queue)
        }).collect();
        let offers: Vec<Offer> = (1..).zip(&settings).map(|(number, row)| (number, row.3, u64::MAX)).collect();
        let root = 200 * mbps;
        let got = rates(&htb(root, &queues), &offers, 1_000_000, late_us);
        let ends = |bps: u64| bps + bps / 20 + 2 * mbps;
        prop_assert!(got.iter().sum::<u64>() <= ends(root));
        for (got, (_, queue)) in got.iter().zip(&queues) {
            prop_assert!(*got <= ends(queue.max_rate), "{got} {queue:?}");
            // All least rates fit into the port's.
            prop_assert!(ends(*got) >= queue.min_rate, "{got} {queue:?}");
        }
        let most: u64 = queues.iter().map(|(_, queue)| queue.max_rate).sum();
        prop_assert!(ends(got.iter().sum()) >= most.min(root));
    }

    /// Packets of a queue leave in order, and each leaves once, whatever changes meanwhile.
    #[test]
    fn packets_stay_in_order(steps in proptest::collection::vec((0u32..4, 60u64..9000, 0u64..3000, any::<bool>()), 1..300)) {
        let many = |n: u32| htb(5_000_000, &(1..n).map(|n| (n, Queue::default())).collect::<Vec<_>>());
        let mut scheduler = Scheduler::new(&many(4), LINK, 0).unwrap();
        let (mut now_us, mut in_order, mut pushed, mut popped) = (0, [0; 4], 0, 0);
        for (number, (queue, bytes, passed_us, changes)) in (1..).zip(steps) {
            if changes {
                popped += scheduler.set(&many(2 + queue % 3), LINK, now_us).len();
            }
            now_us += passed_us;
            // One that does not exist is queue 0.
            let queue = if scheduler.queues(0).iter().any(|known| known.queue == queue) { queue } else { 0 };
            pushed += usize::from(scheduler.push(queue, load(bytes), (queue, number), now_us).is_ok());
            while let Next::Send((queue, number)) = scheduler.pop(now_us) {
                popped += 1;
                prop_assert!(in_order[queue as usize] < number);
                in_order[queue as usize] = number;
            }
        }
        prop_assert_eq!(pushed, popped + scheduler.drain().len());
        prop_assert_eq!(scheduler.memory(), 0);
    }
}
