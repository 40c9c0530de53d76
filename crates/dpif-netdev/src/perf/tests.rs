use super::*;

/// Two cycles per nanosecond.
const CYCLES_PER_US: u64 = 2000;

/// A thread under test: its counters, and its clocks.
struct Rig {
    perf: Perf,
    stats: PmdStats,
    now: Now,
}

impl Rig {
    fn new(metrics: bool, log: PerfLog) -> Rig {
        let stats = PmdStats::default();
        let mut perf = Perf::new(Now::default());
        perf.set(metrics, log, &stats);
        Rig { perf, stats, now: Now::default() }
    }

    fn pass_us(&mut self, us: u64) {
        self.now.us += us;
        self.now.cycles += us * CYCLES_PER_US;
    }

    /// An iteration of this duration, with this number of packets in one batch.
    fn iteration(&mut self, us: u64, packets: u64) {
        self.pass_us(us);
        if packets > 0 {
            self.perf.count_burst(packets as usize);
            self.stats.received += packets;
            self.stats.busy_cycles += us * CYCLES_PER_US;
        } else {
            self.stats.idle_cycles += us * CYCLES_PER_US;
        }
        self.perf.end_iteration(self.now, packets > 0, 0, &self.stats);
    }

    fn sleep(&mut self, us: u64) {
        self.pass_us(us);
        self.stats.idle_cycles += us * CYCLES_PER_US;
        self.perf.end_iteration(self.now, false, us * CYCLES_PER_US, &self.stats);
    }

    fn text(&self, lengths: [usize; 2], histograms: bool) -> String {
        show(&self.perf.snapshot(self.now, &self.stats, lengths), "01:02:03.004", "pmd thread:\n", histograms)
    }
}

/// Ten iterations with packets, among them an upcall, ten without, and a sleep.
fn used(metrics: bool) -> Rig {
    let mut rig = Rig::new(metrics, PerfLog::default());
    for _ in 0..10 {
        rig.iteration(2, 16);
        rig.iteration(1, 0);
    }
    rig.stats.megaflow_hits = 140;
    rig.stats.subtable_lookups = 210;
    rig.stats.cache_hits = 19;
    (rig.stats.upcalls, rig.stats.answers, rig.stats.answers_us) = (1, 1, 40);
    (rig.stats.sent_packets, rig.stats.sent_batches) = (160, 10);
    rig.sleep(970);
    rig
}

const TOTALS: &str = "
Time: 01:02:03.004
Measurement duration: 0.001 s

pmd thread:

  Iterations:                   21  (47.62 us/it)
  - Used TSC cycles:         60000  (  3.0 % of total cycles)
  - idle iterations:            11  ( 33.3 % of used cycles)
  - busy iterations:            10  ( 66.7 % of used cycles)
  - sleep iterations:            1  (  4.8 % of iterations)
  Sleep time (us):             970  (970 us/iteration avg.)
  Rx packets:                  160  (160 Kpps, 250 cycles/pkt)
  Datapath passes:             160  (1.00 passes/pkt)
  - PHWOL hits:                  0  (  0.0 %)
  - MFEX Opt hits:               0  (  0.0 %)
  - Simple Match hits:           0  (  0.0 %)
  - EMC hits:                    0  (  0.0 %)
  - SMC hits:                   19  ( 11.9 %)
  - Megaflow hits:             140  ( 87.5 %, 1.50 subtbl lookups/hit)
  - Upcalls:                     1  (  0.6 %, 40.0 us/upcall)
  - Lost upcalls:                0  (  0.0 %)
  Tx packets:                  160  (160 Kpps)
  Tx batches:                   10  (16.00 pkts/batch)
";

#[test]
fn totals_are_there_without_metrics() {
    assert_eq!(used(false).text([5, 5], true), TOTALS);
    assert_eq!(used(true).text([0, 0], false), TOTALS);
}

#[test]
fn a_thread_without_packets() {
    let text = Rig::new(false, PerfLog::default()).text([0, 0], true);
    assert!(text.contains("  Iterations:                    0  (0.00 us/it)\n"), "{text}");
    assert!(
        text.ends_with("  Rx packets:                    0\n  Tx packets:                    0\n\n"),
        "{text}"
    );
}

#[test]
fn histograms_stand_in_the_columns_of_the_stock_switch() {
    let text = used(true).text([0, 0], true);
    let lines: Vec<&str> = text.strip_prefix(TOTALS).unwrap().lines().collect();
    // The heading and the rule as printed by a stock switch.
    let heading = "   cycles/it              packets/it             cycles/pkt             pkts/batch             \
                   max vhost qlen         upcalls/it             cycles/upcall        ";
    assert_eq!(lines[..3], ["", "Histograms", heading]);
    assert_eq!(lines[35], "-".repeat(154));
    assert_eq!(lines[36], heading.replace("max vhost qlen", "vhost qlen    "));
    // 21 iterations of 0, 2000 or 4000 cycles; 10 batches of 16 packets at 250 cycles; an upcall that waited 80000 cycles.
    let first = "   499       1            0         11           100       0            0         0            0         \
                 21           0         20           999       0          ";
    assert_eq!(lines[3], first);
    let rows = &lines[3..35];
    let samples = |column: usize| -> Vec<(String, u64)> {
        let cell = |row: &&str| {
            let cell = &row[3 + 23 * column..][..21];
            (cell[..8].trim().to_string(), cell[8..].trim().parse().unwrap())
        };
        rows.iter().map(cell).filter(|(_, n)| *n > 0).collect()
    };
    let expected: [&[(&str, u64)]; 7] = [
        &[("499", 1), ("2104", 10), ("4317", 10)],
        &[("0", 11), ("17", 10)],
        &[("1096", 10)],
        &[("16", 10)],
        &[("0", 21)],
        &[("0", 20), ("1", 1)],
        &[("99999", 1)],
    ];
    for (column, expected) in expected.into_iter().enumerate() {
        let expected: Vec<_> = expected.iter().map(|(wall, n)| (wall.to_string(), *n)).collect();
        assert_eq!(samples(column), expected, "column {column}");
    }
    let averages: Vec<&str> = lines[37].split_whitespace().collect();
    assert_eq!(averages, ["2857", "7.61905", "250", "16.00000", "0.00000", "0.04762", "80000"]);
    assert_eq!(lines.len(), 38);
}

#[test]
fn histories_list_the_newest_first() {
    let text = used(true).text([3, 9], false);
    let expected = "
   iter                cycles       packets      cycles/pkt   pkts/batch   vhost qlen   upcalls      cycles/upcall
   20                  0            0            0            0            0            1            80000      
   19                  2000         0            0            0            0            0            0          
   18                  4000         16           250          16           0            0            0          

   ms             iterations   cycles/it    Kpps         cycles/pkt   pkts/batch   vhost qlen   upcalls      cycles/upcall
   0              20           3000         160          375          16           0            0            0          
";
    // The current millisecond is not over.
    assert_eq!(text.strip_prefix(TOTALS).unwrap(), expected);
}

#[test]
fn histories_are_bounded() {
    let mut rig = Rig::new(true, PerfLog::default());
    (0..2 * HISTORY_LEN).for_each(|_| rig.iteration(1000, 1));
    let metrics = rig.perf.metrics.as_ref().unwrap();
    assert_eq!((metrics.iterations.len(), metrics.milliseconds.len()), (HISTORY_LEN, HISTORY_LEN));
    assert_eq!(metrics.iterations.back().unwrap().number, 1999);
}

#[test]
fn metrics_that_are_off_take_no_room_and_clearing_starts_anew() {
    let mut rig = used(true);
    rig.perf.set(false, PerfLog::default(), &rig.stats);
    assert!(rig.perf.metrics.is_none());
    rig.perf.set(true, PerfLog::default(), &rig.stats);
    rig.stats = rig.stats.cleared();
    rig.perf.clear(rig.now, &rig.stats);
    rig.iteration(2, 1);
    let shown = rig.perf.snapshot(rig.now, &rig.stats, [9, 9]);
    assert_eq!((shown.iterations, shown.duration_us, shown.stats.received), (1, 2, 1));
    assert_eq!(shown.metrics.unwrap().sum.packets, 1);
}

#[test]
fn a_long_iteration_is_logged_with_its_neighbours() {
    let log = PerfLog { on: true, before: 1, after: 2, extend: true, longer_than_us: 10 };
    let mut rig = Rig::new(true, log);
    let suspicion = |rig: &Rig| rig.perf.suspicion.map(|s| (s.first, s.last));
    rig.iteration(1, 0);
    assert_eq!(suspicion(&rig), None);
    rig.iteration(11, 0);
    assert_eq!(suspicion(&rig), Some((0, 3)));
    rig.iteration(11, 0);
    assert_eq!(suspicion(&rig), Some((0, 4)), "prolonged");
    rig.perf.set(true, PerfLog { extend: false, ..log }, &rig.stats);
    rig.iteration(11, 0);
    assert_eq!(suspicion(&rig), Some((0, 4)), "not prolonged");
    rig.iteration(1, 0);
    assert_eq!(suspicion(&rig), None, "told");
    rig.iteration(11, 0);
    rig.perf.set(true, PerfLog::default(), &rig.stats);
    assert_eq!(suspicion(&rig), None, "not watched any more");
}
