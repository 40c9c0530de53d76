//! What is measured of an upcall: durations between its stages.

use upcall_events::Stage;

use crate::gather::Kept;
use crate::join::Way;
use crate::stats::Summary;

/// A duration that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Its name in JSON and CSV.
    pub key: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// How it is computed.
    of: Of,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    /// From a stage to a later one.
    Span(Stage, Stage),
    /// The total without what the handler did for it between taking it and asking for the flow.
    Overhead,
}

const fn span(key: &'static str, title: &'static str, from: Stage, to: Stage) -> Figure {
    Figure { key, title, of: Of::Span(from, to) }
}

/// The four that users of OVS know.
pub const MAIN: [Figure; 4] = [
    span("datapath_to_handler", "datapath to handler", Stage::Miss, Stage::Received),
    span("execute_to_datapath", "execute to datapath", Stage::ExecuteSent, Stage::Executed),
    Figure { key: "overhead", title: "overhead without the lookup", of: Of::Overhead },
    span("total", "total: miss to executed", Stage::Miss, Stage::Executed),
];

/// The stages one by one, and the whole way.
pub const STAGES: [Figure; 9] = [
    span("miss_to_enqueued", "miss → enqueued", Stage::Miss, Stage::Enqueued),
    span("enqueued_to_received", "enqueued → received", Stage::Enqueued, Stage::Received),
    span("received_to_translated", "received → translated", Stage::Received, Stage::Translated),
    span("translated_to_put_sent", "translated → put sent", Stage::Translated, Stage::PutSent),
    span("translated_to_execute_sent", "translated → execute sent", Stage::Translated, Stage::ExecuteSent),
    span("put_sent_to_put_done", "put sent → put done", Stage::PutSent, Stage::PutDone),
    span("execute_sent_to_executed", "execute sent → executed", Stage::ExecuteSent, Stage::Executed),
    span("executed_to_on_wire", "executed → on wire", Stage::Executed, Stage::OnWire),
    span("miss_to_on_wire", "whole way: miss → on wire", Stage::Miss, Stage::OnWire),
];

/// The way of the packet itself; the megaflow's own (put sent, put done) is beside it.
const ROAD: [Stage; 7] = [
    Stage::Miss,
    Stage::Enqueued,
    Stage::Received,
    Stage::Translated,
    Stage::ExecuteSent,
    Stage::Executed,
    Stage::OnWire,
];

/// When a way came to a stage, in nanoseconds.
pub fn time(events: &[Kept], way: &Way, stage: Stage) -> Option<u64> {
    Some(events[way.event(stage)?].time_ns)
}

impl Figure {
    /// Its value for a way, in nanoseconds, where the way has the stages for it. Stages that different threads tell may be told
    /// in another order than they happened: that is 0.
    pub fn value(&self, events: &[Kept], way: &Way) -> Option<u64> {
        let between = |from, to| Some(time(events, way, to)?.saturating_sub(time(events, way, from)?));
        match self.of {
            Of::Span(from, to) => between(from, to),
            Of::Overhead => {
                let lookup = between(Stage::Received, Stage::PutSent)?;
                Some(between(Stage::Miss, Stage::Executed)?.saturating_sub(lookup))
            }
        }
    }
}

/// A figure over all ways.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Which.
    pub figure: Figure,
    /// Its statistics.
    pub summary: Summary,
    /// All values, sorted.
    pub values: Vec<u64>,
}

/// Measures a figure.
pub fn measure(figure: Figure, events: &[Kept], ways: &[Way]) -> Measured {
    let matched = ways.iter().filter(|way| way.matched());
    let mut values: Vec<u64> = matched.filter_map(|way| figure.value(events, way)).collect();
    let summary = Summary::of(&mut values);
    Measured { figure, summary, values }
}

/// A part of the way between two stages that were told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where it begins.
    pub from: Stage,
    /// Where it ends.
    pub to: Stage,
    /// How long it took.
    pub ns: u64,
}

/// How long the packet of a way was on the road, and the part of it that took longest; `None` for less than two stages.
pub fn road(events: &[Kept], way: &Way) -> Option<(u64, Part)> {
    let mut seen = ROAD.into_iter().filter_map(|stage| Some((stage, time(events, way, stage)?)));
    let (mut from, first) = seen.next()?;
    let (mut last, mut longest) = (first, None::<Part>);
    for (to, now) in seen {
        let ns = now.saturating_sub(last);
        if longest.is_none_or(|part| ns > part.ns) {
            longest = Some(Part { from, to, ns });
        }
        (from, last) = (to, now.max(last));
    }
    Some((last - first, longest?))
}
