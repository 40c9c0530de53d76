//! Entry points for fuzzing: any bytes in, no panic out.

use std::path::Path;
use std::time::Duration;

use crate::gather::Gathered;
use crate::recording::Recording;
use crate::source::{Polled, Source};
use crate::{Analysed, analyse, export, plot, text};

/// A file as a recording: parsed, joined, measured, and printed in each form.
pub fn recording(bytes: &[u8]) {
    let mut source = Recording::new(Path::new("fuzz"), bytes);
    let mut gathered = Gathered::default();
    let mut notes = Vec::new();
    loop {
        match source.next(Duration::ZERO) {
            Ok(Polled::Record(record)) => gathered.take(&record),
            Ok(Polled::Nothing) => panic!("a file is never waited for"),
            Ok(Polled::End { note }) => break notes.extend(note),
            Err(_) => return,
        }
    }
    let total = gathered.events.len();
    let analysed = analyse("fuzz", gathered, notes, &mut |_| {});
    let joined: usize = analysed.joined.traces.iter().map(|trace| trace.events()).sum();
    assert!(joined <= total, "an event stands in one way at most");
    show(&analysed);
}

fn show(analysed: &Analysed) {
    let report = &analysed.report;
    let full = text::full(report, 20, 10);
    assert!(!full.contains('\u{1b}'), "no escape sequences of a recording reach the terminal");
    assert!(text::summary(report).lines().count() <= 12);
    let both = text::comparison(&[report.clone(), report.clone()]);
    assert!(both.starts_with("Comparison"));
    let _drawn = plot::svg(std::slice::from_ref(report));
    let mut out = Vec::new();
    let written =
        export::csv(std::slice::from_ref(analysed), &mut out).and_then(|()| export::sets(analysed, &mut out));
    assert!(written.is_ok());
    let json = export::json(report).to_string();
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
}
