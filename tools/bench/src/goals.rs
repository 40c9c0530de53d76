//! The project's goals relative to its peers, by row, and their results: the table at the end of a run.

use crate::report::{Row, SideSamples, Spread, number, ratio};
use serde_json::{Value, json};

/// Kind of goal for a row's first side.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bound {
    /// At least this multiple of the best of these peers, if more is better.
    AtLeast(f64, &'static [&'static str]),
    /// At most this multiple of the best of these peers, if less is better.
    AtMost(f64, &'static [&'static str]),
    /// An absolute maximum.
    Below(f64),
    /// An absolute minimum.
    Above(f64),
}

const DPDK: &[&str] = &["ovs-dpdk", "ovs-dpdk, no cache"];
const OVS: &[&str] = &["ovs-netdev"];
/// The best configuration counts.
const OVS_BEST: &[&str] = &["ovs-netdev", "ovs-netdev, tso", "ovs-netdev, offloads off"];
const OVS_AFXDP: &[&str] = &["ovs-afxdp"];
const BRIDGE: &[&str] = &["linux-bridge"];
/// The same program without new connections, and without tracking.
const ALONE: &[&str] = &["sluice, no new connections"];
const UNTRACKED: &[&str] = &["sluice, untracked"];
/// The same program with one port in the bond's place.
const ONE_PORT: &[&str] = &["sluice, one port"];
/// Tolerated ratio of the delay with a hundred ports: the difference between two equal runs.
const PORTS_TOLERANCE: f64 = 1.2;

/// Maximum cost of a pipeline with three recirculations relative to one without.
const THREE_RECIRCULATIONS: f64 = 3.5;

/// The goals, by row.
const GOALS: &[(&str, Bound)] = &[
    ("pcap-1", Bound::AtLeast(1.5, DPDK)),
    ("pcap-1000", Bound::AtLeast(1.5, DPDK)),
    ("pcap-100000", Bound::AtLeast(2.5, DPDK)),
    ("pcap-17masks", Bound::AtLeast(3.0, DPDK)),
    ("setup-rate", Bound::AtLeast(10.0, DPDK)),
    ("setup-forwarded-during", Bound::AtLeast(10.0, DPDK)),
    ("setup-forwarded-after", Bound::AtLeast(10.0, DPDK)),
    ("pipeline-0", Bound::AtLeast(1.0, DPDK)),
    ("pipeline-1", Bound::AtLeast(1.0, DPDK)),
    ("pipeline-2", Bound::AtLeast(1.0, DPDK)),
    ("pipeline-3", Bound::AtLeast(1.0, DPDK)),
    ("ct-1000", Bound::AtLeast(3.0, DPDK)),
    ("ct-100000", Bound::AtLeast(5.0, DPDK)),
    ("ct-100000-snat", Bound::AtLeast(8.0, DPDK)),
    ("ct-new", Bound::Above(1.0)),
    ("ct-beside-new", Bound::AtLeast(0.8, ALONE)),
    ("ct-tcp", Bound::AtLeast(0.9, UNTRACKED)),
    ("tunnel-push", Bound::AtLeast(1.4, DPDK)),
    ("tunnel-pop", Bound::AtLeast(2.0, DPDK)),
    ("tunnel-l3", Bound::AtLeast(3.0, DPDK)),
    ("rules-bundle", Bound::AtMost(0.34, OVS)),
    ("rules-add", Bound::AtMost(0.34, OVS)),
    ("rules-dump", Bound::AtMost(1.0, OVS)),
    ("rules-delete", Bound::AtMost(1.0, OVS)),
    ("rules-delete-cookie", Bound::AtMost(1.0, OVS)),
    ("rules-memory", Bound::Below(300.0)),
    ("ovn-load", Bound::AtMost(1.0, OVS)),
    ("ovn-memory", Bound::AtMost(1.0, OVS)),
    ("ovn-change-p99", Bound::Below(10.0)),
    ("ovn-change-p99", Bound::AtMost(0.5, OVS)),
    ("first-p50", Bound::AtMost(0.7, OVS)),
    ("first-deviation", Bound::Below(10.0)),
    ("first-loaded-lost", Bound::Below(1.0)),
    ("first-idle-lost", Bound::Below(0.0)),
    ("first-idle-p99", Bound::Below(2.0)),
    ("lookups-2", Bound::Below(1.5)),
    ("lookups-1", Bound::Below(1.0)),
    ("udp64-1", Bound::AtLeast(2.0, OVS)),
    ("udp64-1", Bound::AtLeast(1.0, BRIDGE)),
    ("udp64-1000", Bound::AtLeast(2.0, OVS)),
    ("udp64-1000", Bound::AtLeast(1.0, BRIDGE)),
    ("udp64-100000", Bound::AtLeast(2.0, OVS)),
    ("udp64-100000", Bound::AtLeast(1.0, BRIDGE)),
    ("afxdp-udp64-1", Bound::AtLeast(1.0, OVS_AFXDP)),
    ("afxdp-udp64-1000", Bound::AtLeast(1.0, OVS_AFXDP)),
    ("afxdp-udp64-100000", Bound::AtLeast(1.0, OVS_AFXDP)),
    ("afxdp-udp64-1-cost", Bound::AtMost(1.0, OVS_AFXDP)),
    ("afxdp-udp64-1000-cost", Bound::AtMost(1.0, OVS_AFXDP)),
    ("afxdp-udp64-100000-cost", Bound::AtMost(1.0, OVS_AFXDP)),
    ("afxdp-delay-p50-2ports", Bound::AtMost(1.0, OVS_AFXDP)),
    ("afxdp-delay-p99-2ports", Bound::AtMost(1.0, OVS_AFXDP)),
    ("tcp", Bound::AtLeast(1.0, OVS_BEST)),
    ("tcp", Bound::AtLeast(0.8, BRIDGE)),
    ("udp1400", Bound::AtLeast(2.5, OVS_BEST)),
    ("udp1400", Bound::AtLeast(0.75, BRIDGE)),
    ("delay-p50-2ports", Bound::AtMost(0.5, OVS)),
    ("delay-p99-2ports", Bound::AtMost(0.5, OVS)),
    ("delay-p50-100ports", Bound::AtMost(0.5, OVS)),
    ("delay-p99-100ports", Bound::AtMost(0.5, OVS)),
    ("bond", Bound::AtLeast(0.95, ONE_PORT)),
    ("bond-cost", Bound::AtMost(1.05, ONE_PORT)),
    ("idle-100ports", Bound::Below(1.0)),
    ("restart", Bound::Below(1.0)),
    ("restart-kill", Bound::Below(50.0)),
];

/// A line of the table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    pub(crate) row: String,
    pub(crate) unit: &'static str,
    /// Median of the row's first side.
    pub(crate) ours: f64,
    /// The peer's name and median.
    pub(crate) peer: Option<(String, f64)>,
    /// The first side to the peer, by round.
    pub(crate) ratio: Option<Spread>,
    /// In words; empty without a goal.
    pub(crate) goal: String,
    /// `None`: no goal, or no peer.
    pub(crate) met: Option<bool>,
}

/// The best of the named sides: with the highest or lowest median.
fn best<'a>(row: &'a Row, peers: &[&str], more_is_better: bool) -> Option<(&'a SideSamples, f64)> {
    let others = row.sides.iter().skip(1).filter(|s| peers.contains(&s.side.as_str()));
    let medians = others.filter_map(|s| Some((s, s.spread()?.median)));
    let by_median = |a: &(_, f64), b: &(_, f64)| a.1.total_cmp(&b.1);
    if more_is_better { medians.max_by(by_median) } else { medians.min_by(by_median) }
}

fn absolute(row: &Row, ours: f64, met: bool, sign: &str, limit: f64) -> Verdict {
    let goal = format!("{sign} {limit} {}", row.unit);
    Verdict { row: row.id.clone(), unit: row.unit, ours, peer: None, ratio: None, goal, met: Some(met) }
}

fn judge(row: &Row, ours: f64, bound: Bound) -> Verdict {
    let (factor, peers, more) = match bound {
        Bound::AtLeast(factor, peers) => (factor, peers, true),
        Bound::AtMost(factor, peers) => (factor, peers, false),
        // To the digits that are shown.
        Bound::Below(most) => return absolute(row, ours, (ours * 100.0).round() <= most * 100.0, "≤", most),
        Bound::Above(least) => {
            return absolute(row, ours, (ours * 100.0).round() >= least * 100.0, "≥", least);
        }
    };
    let goal = format!("{} {factor} × {}", if more { "≥" } else { "≤" }, peers[0]);
    let peer = best(row, peers, more);
    let ratio = peer.and_then(|(p, _)| ratio(row.sides.first()?, p));
    let met = ratio.map(|r| if more { r.median >= factor } else { r.median <= factor });
    let peer = peer.map(|(p, median)| (p.side.clone(), median));
    Verdict { row: row.id.clone(), unit: row.unit, ours, peer, ratio, goal, met }
}

/// All lines of a row: one per goal, or one per peer without goals.
fn of_row(row: &Row) -> Vec<Verdict> {
    let Some((first, ours)) = row.sides.first().and_then(|f| Some((f, f.spread()?.median))) else {
        return Vec::new();
    };
    let goals = GOALS.iter().filter(|(id, _)| *id == row.id);
    let judged: Vec<Verdict> = goals.map(|(_, bound)| judge(row, ours, *bound)).collect();
    if !judged.is_empty() {
        return judged;
    }
    let plain = |peer, ratio| {
        let (row, unit) = (row.id.clone(), row.unit);
        Verdict { row, unit, ours, peer, ratio, goal: String::new(), met: None }
    };
    let beside = |s: &SideSamples| plain(Some((s.side.clone(), s.spread()?.median)), ratio(first, s)).into();
    if row.sides.len() == 1 {
        vec![plain(None, None)]
    } else {
        row.sides[1..].iter().filter_map(beside).collect()
    }
}

/// The delay with a hundred ports against that with two.
fn ports_show(rows: &[Row]) -> Vec<Verdict> {
    let first = |id: String| rows.iter().find(|r| r.id == id)?.sides.first();
    let line = |share: &&str| {
        let (many, few) =
            (first(format!("delay-{share}-100ports"))?, first(format!("delay-{share}-2ports"))?);
        let ratio = ratio(many, few)?;
        Some(Verdict {
            row: format!("delay-{share}-100ports"),
            unit: "µs",
            ours: many.spread()?.median,
            peer: Some(("sluice with 2 ports".into(), few.spread()?.median)),
            ratio: Some(ratio),
            goal: format!("≤ {PORTS_TOLERANCE} × that"),
            met: Some(ratio.median <= PORTS_TOLERANCE),
        })
    };
    ["p50", "p99"].iter().filter_map(line).collect()
}

/// Compares the cycles of a pipeline with three recirculations with those of one without.
fn recirculation_cost(rows: &[Row]) -> Option<Verdict> {
    let first = |id: &str| rows.iter().find(|r| r.id == id)?.sides.first();
    let (three, none) = (first("pipeline-3-cycles")?, first("pipeline-0-cycles")?);
    let ratio = ratio(three, none)?;
    Some(Verdict {
        row: "pipeline-3-cycles".into(),
        unit: "cycles",
        ours: three.spread()?.median,
        peer: Some(("sluice, none".into(), none.spread()?.median)),
        ratio: Some(ratio),
        goal: format!("≤ {THREE_RECIRCULATIONS} × that"),
        met: Some(ratio.median <= THREE_RECIRCULATIONS),
    })
}

/// The lines of all rows.
pub(crate) fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    rows.iter().flat_map(of_row).chain(ports_show(rows)).chain(recirculation_cost(rows)).collect()
}

impl Verdict {
    /// For the reader's eyes.
    pub(crate) fn text(&self) -> String {
        let (name, value) = match &self.peer {
            Some((name, median)) => (name.as_str(), number(*median)),
            None => ("", String::new()),
        };
        let ratio = self
            .ratio
            .map_or_else(String::new, |r| format!("{:>6.2} ({:.2} … {:.2})", r.median, r.least, r.most));
        let met = match (self.met, self.goal.is_empty()) {
            (Some(true), _) => "met",
            (Some(false), _) => "NOT MET",
            (None, false) => "nobody to compare with",
            (None, true) => "",
        };
        let ours = number(self.ours);
        let line = format!(
            "{:<28} {ours:>8} {:<10} {name:<30} {value:>8} {ratio:<24} {:<24} {met}",
            self.row, self.unit, self.goal
        );
        line.trim_end().to_string()
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "row": self.row,
            "sluice": self.ours,
            "peer": self.peer.as_ref().map(|p| &p.0),
            "peer_median": self.peer.as_ref().map(|p| p.1),
            "ratio": self.ratio.map(|r| r.median),
            "goal": self.goal,
            "met": self.met,
        })
    }
}

/// The table's head.
pub(crate) fn head() -> String {
    format!(
        "{:<28} {:>8} {:<10} {:<30} {:>8} {:<24} {}",
        "row", "first", "", "peer", "its", " ratio (least … most)", "goal"
    )
}
