//! Commands about the turns of the main loop.

use super::perf::time_of_day;
use super::{Json, Reply, Rows, TypedReply, command};
use crate::control_plane::ControlPlane;
use crate::loop_times::{Part, PartTimes, TurnTimes};
use crate::upcall_times::BOUNDS_US;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command("sluice/loop-clear", (), "forget the times of the main loop's turns so far", clear),
    &command("sluice/loop-show", (), "show how long the turns of the main loop take, by their parts", show),
];

fn clear(plane: &mut ControlPlane, (): ()) -> Reply {
    plane.loop_times.clear();
    String::new().into()
}

fn show(plane: &mut ControlPlane, (): ()) -> Reply {
    Reply::Value(Box::new(plane.loop_times.so_far().clone()))
}

/// Parts that took time.
fn parts(times: &TurnTimes) -> impl Iterator<Item = (&'static str, PartTimes)> {
    let all = Part::ALL.into_iter().map(|part| (part.name(), times.parts[part as usize]));
    all.filter(|(_, part)| part.sum_us > 0)
}

/// Upper bounds in microseconds, and turns in these buckets; the last one has no bound.
fn buckets(times: &TurnTimes) -> impl Iterator<Item = (Option<u64>, u64)> {
    BOUNDS_US.into_iter().map(Some).chain([None]).zip(times.turns.buckets).filter(|(_, turns)| *turns > 0)
}

fn ms(us: u64) -> String {
    format!("{:.3} ms", us as f64 / 1e3)
}

impl TypedReply for TurnTimes {
    fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "turns: {}, {} together",
            self.turns.buckets.iter().sum::<u64>(),
            ms(self.turns.sum_us)
        );
        if let Some(longest) = self.longest {
            let (whole, part) = (ms(longest.us), ms(longest.part_us));
            let (at, name) = (time_of_day(longest.at_ms), longest.part.name());
            let _ = writeln!(out, "longest turn: {whole} at {at} UTC, {part} of it {name}");
        }
        let _ = writeln!(out, "\n{:<14} {:>14} {:>16}", "part", "longest", "together");
        for (name, part) in parts(self) {
            let _ = writeln!(out, "{name:<14} {:>14} {:>16}", ms(part.longest_us), ms(part.sum_us));
        }
        let _ = writeln!(out, "\n{:<14} {:>14}", "up to", "turns");
        for (bound, turns) in buckets(self) {
            let bound = bound.map_or("longer".to_string(), |us| format!("{us} us"));
            let _ = writeln!(out, "{bound:<14} {turns:>14}");
        }
        out
    }

    fn json(&self) -> Json<'_> {
        let longest = self.longest.map(|longest| {
            json!({
                "us": longest.us,
                "at_ms": longest.at_ms,
                "part": longest.part.name(),
                "part_us": longest.part_us,
            })
        });
        let part = |(name, part): (&str, PartTimes)| json!({"part": name, "longest_us": part.longest_us, "sum_us": part.sum_us});
        let bucket = |(bound, turns): (Option<u64>, u64)| json!({"up_to_us": bound, "turns": turns});
        Json::Whole(json!({
            "turns": self.turns.buckets.iter().sum::<u64>(),
            "sum_us": self.turns.sum_us,
            "longest": longest,
            "parts": parts(self).map(part).collect::<Vec<Value>>(),
            "buckets": buckets(self).map(bucket).collect::<Vec<Value>>(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loop_times::LongestTurn;

    fn times() -> TurnTimes {
        let mut times = TurnTimes::default();
        [7, 8, 12_345, 2_000_000].iter().for_each(|us| times.turns.add(*us));
        times.parts[Part::Database as usize] = PartTimes { sum_us: 2_012_000, longest_us: 1_999_000 };
        times.parts[Part::Commands as usize] = PartTimes { sum_us: 360, longest_us: 345 };
        let at_ms = 1_700_000_000_123;
        times.longest = Some(LongestTurn { us: 2_000_000, at_ms, part: Part::Database, part_us: 1_999_000 });
        times
    }

    #[test]
    fn the_text_names_the_longest_turn_its_time_and_its_part() {
        let expected = "\
turns: 4, 2012.360 ms together
longest turn: 2000.000 ms at 22:13:20.123 UTC, 1999.000 ms of it database

part                  longest         together
database          1999.000 ms      2012.000 ms
commands             0.345 ms         0.360 ms

up to                   turns
10 us                       2
25000 us                    1
longer                      1
";
        assert_eq!(times().text(), expected);
        assert!(TurnTimes::default().text().starts_with("turns: 0, 0.000 ms together\n\npart"));
    }

    #[test]
    fn the_json_has_the_same() {
        let expected = json!({
            "turns": 4,
            "sum_us": 2_012_360,
            "longest": {"us": 2_000_000, "at_ms": 1_700_000_000_123_u64, "part": "database", "part_us": 1_999_000},
            "parts": [
                {"part": "database", "longest_us": 1_999_000, "sum_us": 2_012_000},
                {"part": "commands", "longest_us": 345, "sum_us": 360},
            ],
            "buckets": [
                {"up_to_us": 10, "turns": 2},
                {"up_to_us": 25_000, "turns": 1},
                {"up_to_us": null, "turns": 1},
            ],
        });
        assert_eq!(times().json().value(), expected);
        assert_eq!(TurnTimes::default().json().value()["longest"], Value::Null);
    }
}
