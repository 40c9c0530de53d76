//! Metrics of an upcall: durations between its stages.

use upcall_events::Stage;

use crate::gather::Kept;
use crate::join::UpcallTrace;
use crate::stats::Summary;

/// A measured duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name in JSON and CSV.
    pub key: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// Its computation.
    of: Of,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    /// From a stage to a later one.
    Span(Stage, Stage),
    /// The total without the handler's time between receiving the upcall and sending the put.
    Overhead,
}

const fn span(key: &'static str, title: &'static str, from: Stage, to: Stage) -> Metric {
    Metric { key, title, of: Of::Span(from, to) }
}

/// The four known from OVS.
pub const MAIN: [Metric; 4] = [
    span("datapath_to_handler", "datapath to handler", Stage::Miss, Stage::Received),
    span("execute_to_datapath", "execute to datapath", Stage::ExecuteSent, Stage::Executed),
    Metric { key: "overhead", title: "overhead without the lookup", of: Of::Overhead },
    span("total", "total: miss to executed", Stage::Miss, Stage::Executed),
];

/// The stages one by one, and the whole way.
pub const STAGES: [Metric; 9] = [
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

/// The path of the packet itself; the megaflow's stages (put sent, put done) are beside it.
const PACKET_PATH: [Stage; 7] = [
    Stage::Miss,
    Stage::Enqueued,
    Stage::Received,
    Stage::Translated,
    Stage::ExecuteSent,
    Stage::Executed,
    Stage::OnWire,
];

/// Time of an upcall's stage, in nanoseconds.
pub fn time(events: &[Kept], trace: &UpcallTrace, stage: Stage) -> Option<u64> {
    Some(events[trace.event(stage)?].time_ns)
}

impl Metric {
    /// Its value for an upcall, in nanoseconds, if the upcall has the stages. Stages reported by different
    /// threads may be out of order: that is 0.
    pub fn value(&self, events: &[Kept], trace: &UpcallTrace) -> Option<u64> {
        let between = |from, to| Some(time(events, trace, to)?.saturating_sub(time(events, trace, from)?));
        match self.of {
            Of::Span(from, to) => between(from, to),
            Of::Overhead => {
                let lookup = between(Stage::Received, Stage::PutSent)?;
                Some(between(Stage::Miss, Stage::Executed)?.saturating_sub(lookup))
            }
        }
    }
}

/// A metric over all upcalls.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The metric.
    pub metric: Metric,
    /// Its statistics.
    pub summary: Summary,
    /// All values, sorted.
    pub values: Vec<u64>,
}

/// Measures a metric.
pub fn measure(metric: Metric, events: &[Kept], traces: &[UpcallTrace]) -> Measured {
    let matched = traces.iter().filter(|trace| trace.matched());
    let mut values: Vec<u64> = matched.filter_map(|trace| metric.value(events, trace)).collect();
    let summary = Summary::of(&mut values);
    Measured { metric, summary, values }
}

/// A part of the path between two reported stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathSegment {
    /// First stage.
    pub from: Stage,
    /// Last stage.
    pub to: Stage,
    /// Its duration.
    pub ns: u64,
}

/// Duration of a packet's path, and its longest part; `None` below two stages.
pub fn packet_path(events: &[Kept], trace: &UpcallTrace) -> Option<(u64, PathSegment)> {
    let mut seen = PACKET_PATH.into_iter().filter_map(|stage| Some((stage, time(events, trace, stage)?)));
    let (mut from, first) = seen.next()?;
    let (mut last, mut longest) = (first, None::<PathSegment>);
    for (to, now) in seen {
        let ns = now.saturating_sub(last);
        if longest.is_none_or(|part| ns > part.ns) {
            longest = Some(PathSegment { from, to, ns });
        }
        (from, last) = (to, now.max(last));
    }
    Some((last - first, longest?))
}
