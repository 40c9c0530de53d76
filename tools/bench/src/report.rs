//! Results: medians and spreads of a row's sides, their ratios, as text, JSON and CSV.

use crate::traffic::Losses;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Median, least and most of some values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// The spread of values in any order; `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 };
        Some(Spread { median, least, most })
    }
}

/// The value below which a share of the values lies (nearest rank); sorts them.
pub(crate) fn percentile(values: &mut [u64], share: f64) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

/// One measurement of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// The value, if any ("no connection").
    pub(crate) value: Option<f64>,
    /// Load offered by the generator, in the row's unit.
    pub(crate) offered: Option<f64>,
    /// Frames sent and received, if counted.
    pub(crate) frames: Option<(u64, u64)>,
    /// Places of losses.
    pub(crate) losses: Losses,
    /// Drops by the switch's own port counters.
    pub(crate) own_drops: Option<u64>,
    /// The fault of the result.
    pub(crate) fault: Option<String>,
    /// A word for the reader.
    pub(crate) note: Option<String>,
}

/// All measurements of one side in a row, by round.
#[derive(Clone, Debug)]
pub(crate) struct SideSamples {
    pub(crate) side: String,
    pub(crate) samples: Vec<Sample>,
}

/// A row: one measurement of several sides in turn.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    /// The first is Sluice's.
    pub(crate) sides: Vec<SideSamples>,
}

impl SideSamples {
    fn values(&self) -> Vec<f64> {
        self.samples.iter().filter_map(|s| s.value).collect()
    }

    /// Spread of its values; `None` if it has none.
    pub(crate) fn spread(&self) -> Option<Spread> {
        Spread::of(&self.values())
    }

    fn notes(&self) -> String {
        let mut notes: Vec<&str> = self.samples.iter().filter_map(|s| s.note.as_deref()).collect();
        notes.sort_unstable();
        notes.dedup();
        notes.join("; ")
    }

    /// Lost frames in per cent of those sent: by the switch, elsewhere.
    fn loss_percent(&self) -> Option<(f64, f64)> {
        let mut sums = (0, 0, 0);
        for s in &self.samples {
            sums.0 += s.frames?.0;
            sums.1 += s.losses.in_switch;
            sums.2 += s.losses.before_port + s.losses.behind;
        }
        let percent = |n: u64| 100.0 * n as f64 / (sums.0.max(1)) as f64;
        Some((percent(sums.1), percent(sums.2)))
    }
}

/// Ratios of two sides' values, round by round.
pub(crate) fn ratio(a: &SideSamples, b: &SideSamples) -> Option<Spread> {
    let pairs = a.samples.iter().zip(&b.samples);
    let ratios: Vec<f64> =
        pairs.filter_map(|(a, b)| Some(a.value? / b.value.filter(|v| *v > 0.0)?)).collect();
    Spread::of(&ratios)
}

/// A value with its significant digits.
pub(crate) fn number(v: f64) -> String {
    let digits = if v.abs() < 10.0 { 3 } else { 1 };
    format!("{v:.digits$}")
}

impl Row {
    /// The faults of its results.
    pub(crate) fn faults(&self) -> Vec<String> {
        let of = |s: &SideSamples| -> Vec<String> {
            let all = s.samples.iter().filter_map(|x| x.fault.as_ref());
            all.map(|c| format!("{}, {}: {c}", self.id, s.side)).collect()
        };
        self.sides.iter().flat_map(of).collect()
    }

    /// For the reader's eyes.
    pub(crate) fn text(&self) -> String {
        let mut out = format!("{} [{}]\n", self.title, self.unit);
        for s in &self.sides {
            let value = s.spread().map_or_else(
                || format!("{:>8}", "none"),
                |v| format!("{:>8}  ({} … {})", number(v.median), number(v.least), number(v.most)),
            );
            let _ = write!(out, "  {:<24} {value:<28}", s.side);
            if let Some(first) = self.sides.first().filter(|f| f.side != s.side)
                && let Some(r) = ratio(first, s)
            {
                let _ = write!(
                    out,
                    "  {} is {:.2} times that ({:.2} … {:.2})",
                    first.side, r.median, r.least, r.most
                );
            }
            if let Some((switch, elsewhere)) = s.loss_percent() {
                let _ = write!(out, "  lost: {switch:.1} % in the switch, {elsewhere:.1} % elsewhere");
            }
            let own: Option<u64> = s.samples.iter().map(|x| x.own_drops).sum();
            let lost: u64 = s.samples.iter().map(|x| x.losses.in_switch).sum();
            if let Some(own) = own.filter(|_| lost > 0) {
                let _ = write!(out, " (its counters own up to {:.0} %)", 100.0 * own as f64 / lost as f64);
            }
            let offered: Vec<f64> = s.samples.iter().filter_map(|x| x.offered).collect();
            if let Some(offered) = Spread::of(&offered) {
                let _ = write!(out, "; offered {}", number(offered.median));
            }
            let notes = s.notes();
            let _ = writeln!(out, "{}{notes}", if notes.is_empty() { "" } else { "  " });
            for fault in s.samples.iter().filter_map(|x| x.fault.as_ref()) {
                let _ = writeln!(out, "    failed: {fault}");
            }
        }
        out
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let sample = |s: &Sample| {
            json!({
                "value": s.value,
                "offered": s.offered,
                "sent": s.frames.map(|f| f.0),
                "received": s.frames.map(|f| f.1),
                "lost_before_port": s.losses.before_port,
                "lost_in_switch": s.losses.in_switch,
                "lost_behind": s.losses.behind,
                "own_drops": s.own_drops,
                "complaint": s.fault,
                "note": s.note,
            })
        };
        let side = |s: &SideSamples| {
            let spread = s.spread();
            json!({
                "side": s.side,
                "median": spread.map(|v| v.median),
                "least": spread.map(|v| v.least),
                "most": spread.map(|v| v.most),
                "sluice_ratio": self.sides.first().and_then(|f| ratio(f, s)).map(|r| r.median),
                "rounds": s.samples.iter().map(sample).collect::<Vec<_>>(),
            })
        };
        json!({
            "row": self.id,
            "title": self.title,
            "unit": self.unit,
            "sides": self.sides.iter().map(side).collect::<Vec<_>>(),
        })
    }

    /// One line per measurement: `row,unit,side,round,value,sent,received,lost_in_switch`.
    pub(crate) fn csv(&self) -> String {
        let mut out = String::new();
        for s in &self.sides {
            for (round, x) in s.samples.iter().enumerate() {
                let value = x.value.map(|v| v.to_string()).unwrap_or_default();
                let (sent, received) =
                    x.frames.map(|f| (f.0.to_string(), f.1.to_string())).unwrap_or_default();
                let lost = x.frames.map(|_| x.losses.in_switch.to_string()).unwrap_or_default();
                let _ = writeln!(
                    out,
                    "{},{},{},{},{value},{sent},{received},{lost}",
                    self.id,
                    self.unit,
                    s.side,
                    round + 1
                );
            }
        }
        out
    }
}
