//! The command: collects, records, analyses and prints, by its options.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use upcall_events::{Record, Stage};

use crate::gather::Gathered;
use crate::options::{From, Handlers, Options};
use crate::recording::{Recorder, Recording};
use crate::report::Report;
use crate::ring::Ring;
use crate::source::{Capture, Polled, Source};
use crate::{Analysed, analyse, bpf, export, live, plot, text};

/// Interval of checks for the user's stop request.
const WAIT: Duration = Duration::from_millis(100);
/// Maximum number of unmatched upcalls printed by `--debug`.
const UNMATCHED_MAX: usize = 50;

/// Executes the command line. `run_dir`: folder of the switch's sockets.
///
/// # Errors
///
/// Invalid options, no switch to trace, or a file that is no recording or cannot be read or written.
pub fn run(options: &Options, run_dir: PathBuf) -> Result<()> {
    options.check()?;
    let mut recordings = Vec::new();
    if let Some(path) = &options.read_events {
        recordings.push(read(path, options, !options.quiet && listing(options))?);
    } else if options.compare.is_empty() {
        recordings.push(trace(options, run_dir)?);
    }
    for path in &options.compare {
        recordings.push(read(path, options, false)?);
    }
    print(&recordings, options)?;
    if let Some(path) = &options.csv {
        let created = File::create(path).with_context(|| format!("{}: cannot be created", path.display()))?;
        let mut out = BufWriter::new(created);
        let written = export::csv(&recordings, &mut out).and_then(|()| out.flush());
        written.with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    if let Some(path) = &options.plot {
        let reports: Vec<Report> = recordings.into_iter().map(|recording| recording.report).collect();
        plot::draw(&reports, path)?;
    }
    Ok(())
}

/// Whether to list events on standard output.
fn listing(options: &Options) -> bool {
    !options.json && !options.summary && options.compare.is_empty()
}

fn print(recordings: &[Analysed], options: &Options) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match recordings {
        _ if options.json && options.compare.is_empty() => {
            recordings.iter().try_for_each(|one| writeln!(out, "{:#}", export::json(&one.report)))
        }
        _ if options.json => {
            let all: Vec<_> = recordings.iter().map(|one| export::json(&one.report)).collect();
            writeln!(out, "{:#}", serde_json::json!({"recordings": all}))
        }
        [one] if options.summary => out.write_all(text::summary(&one.report).as_bytes()),
        [one] if options.compare.is_empty() => {
            let sets = if options.sets { export::sets(one, &mut out) } else { Ok(()) };
            let (buckets, outliers) = (options.histogram_buckets as usize, options.outliers as usize);
            sets.and_then(|()| out.write_all(text::full(&one.report, buckets, outliers).as_bytes()))
        }
        _ => {
            let reports: Vec<Report> = recordings.iter().map(|one| one.report.clone()).collect();
            out.write_all(text::comparison(&reports).as_bytes())
        }
    };
    reached(printed.and_then(|()| out.flush()))
}

/// A reader that went away (`| head`) is no error.
fn reached(printed: io::Result<()>) -> Result<()> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(()),
    }
}

fn say(text: &str) {
    // Standard error may be closed.
    let _unwritten = writeln!(io::stderr(), "upcall-cost: {text}");
}

/// Reads and analyses a recording.
fn read(path: &Path, options: &Options, list: bool) -> Result<Analysed> {
    let mut gathering = Gathering::new(options, list)?;
    gathering.from(&mut Recording::open(path)?, None, &AtomicBool::new(false))?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(gathering.analyse(&name, options))
}

/// Traces a switch and analyses the events.
fn trace(options: &Options, run_dir: PathBuf) -> Result<Analysed> {
    let capture = Capture {
        pid: options.pid,
        run_dir,
        packet_bytes: options.packet_size as usize,
        key_bytes: options.flow_key_size as usize,
        buffer_pages: options.buffer_page_count as usize,
        debug: options.debug,
    };
    let mut source = open(options.source, &capture)?;
    let recorder = options.write_events.as_deref().map(Recorder::create).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("signals cannot be watched")?;
    }
    let until = options.duration.map_or("Ctrl-C stops it".to_owned(), |time| format!("for {time:?}"));
    say(&format!("tracing by {}; {until}", source.describe()));
    let mut gathering = Gathering::new(options, !options.quiet && listing(options))?;
    gathering.recorder = recorder;
    gathering.from(source.as_mut(), options.duration.map(|time| Instant::now() + time), &stop)?;
    Ok(gathering.analyse("live", options))
}

fn open(from: From, capture: &Capture) -> Result<Box<dyn Source>> {
    match from {
        From::Auto => match bpf::open(capture) {
            Ok(source) => Ok(Box::new(source)),
            Err(why) => {
                let ring = Ring::open(capture).map_err(|e| e.context(format!("{why:#}")))?;
                say(&format!("{why:#}; the daemon's event ring is used instead"));
                Ok(Box::new(ring))
            }
        },
        From::Bpf => Ok(Box::new(bpf::open(capture)?)),
        From::Ring => Ok(Box::new(Ring::open(capture)?)),
    }
}

/// State of a trace.
struct Gathering {
    gathered: Gathered,
    handlers: Handlers,
    notes: Vec<String>,
    recorder: Option<Recorder>,
    list: Option<BufWriter<io::Stdout>>,
    /// Received events, and the wanted number; 0: all.
    events: u64,
    stop: u64,
}

impl Gathering {
    fn new(options: &Options, list: bool) -> Result<Self> {
        let mut list = list.then(|| BufWriter::new(io::stdout()));
        if let Some(out) = &mut list {
            reached(writeln!(out, "{}", live::headings()))?;
        }
        let mut gathered = Gathered::default();
        gathered.handled_only = options.handler_filter.is_some();
        Ok(Gathering {
            gathered,
            handlers: Handlers::new(options.handler_filter.as_deref())?,
            notes: Vec::new(),
            recorder: None,
            list,
            events: 0,
            stop: options.stop,
        })
    }

    /// Reads a source until its end, `end`, the wanted number of events, or `stop`. Keeps stored records in
    /// every case.
    fn from(&mut self, source: &mut dyn Source, end: Option<Instant>, stop: &AtomicBool) -> Result<()> {
        let (mut ended, mut closed) = (true, false);
        loop {
            let left = end.map_or(WAIT, |end| end.saturating_duration_since(Instant::now()));
            if self.gathered.full() || self.stop != 0 && self.events >= self.stop {
                break;
            }
            if !closed && (left.is_zero() || stop.load(Ordering::Relaxed)) {
                closed = source.close();
                if !closed {
                    break;
                }
            }
            match source.next(left.min(WAIT)) {
                Ok(Polled::Record(record)) => self.take(&record),
                Ok(Polled::Nothing) => self.flush(),
                Ok(Polled::End { note }) => {
                    ended = note.is_none();
                    self.notes.extend(note);
                    break;
                }
                Err(error) if self.events == 0 => return Err(error),
                Err(error) => {
                    ended = false;
                    self.notes.push(format!("{error:#}; what was gathered before is used"));
                    break;
                }
            }
        }
        if ended {
            self.record(&Record::End);
        }
        self.flush();
        Ok(())
    }

    fn take(&mut self, record: &Record) {
        // The end is written once, when it is reached.
        if *record != Record::End {
            self.record(record);
        }
        if let Record::Event(event) = record {
            let reported_by_handler = (Stage::Received..=Stage::ExecuteSent).contains(&event.stage);
            if reported_by_handler && !self.handlers.count(&self.gathered.thread_name(event.thread)) {
                return;
            }
            self.events += 1;
        }
        self.gathered.take(record);
        if let Some(out) = &mut self.list
            && let Some(line) = live::line(record, &self.gathered)
            && writeln!(out, "{line}").is_err()
        {
            self.list = None;
        }
    }

    /// Writes to the recording; on failure warns and continues without.
    fn record(&mut self, record: &Record) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Err(error) = recorder.write(record) {
            self.stop_recording(&error);
        }
    }

    fn stop_recording(&mut self, error: &anyhow::Error) {
        let note = format!("{error:#}; the recording ends there, tracing went on");
        say(&note);
        self.notes.push(note);
        self.recorder = None;
    }

    fn flush(&mut self) {
        if let Some(out) = &mut self.list
            && out.flush().is_err()
        {
            self.list = None;
        }
        if let Some(Err(error)) = self.recorder.as_mut().map(Recorder::flush) {
            self.stop_recording(&error);
        }
    }

    fn analyse(mut self, name: &str, options: &Options) -> Analysed {
        if let Some(out) = &mut self.list {
            // An empty line between events and report.
            let _closed = writeln!(out);
        }
        self.flush();
        let bar = ProgressBar::with_draw_target(
            Some(self.gathered.events.len() as u64),
            ProgressDrawTarget::stderr(),
        );
        if let Ok(style) = ProgressStyle::with_template("matching {wide_bar} {pos}/{len} events, {elapsed}") {
            bar.set_style(style);
        }
        if !io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let analysed = analyse(name, self.gathered, self.notes, &mut |done| bar.set_position(done as u64));
        bar.finish_and_clear();
        if options.debug {
            debug(&analysed);
        }
        analysed
    }
}

/// Prints the unmatched upcalls: the letters of their stages, and the reason.
fn debug(analysed: &Analysed) {
    let unmatched = || analysed.joined.traces.iter().filter(|trace| !trace.matched());
    for trace in unmatched().take(UNMATCHED_MAX) {
        let stages: Vec<&str> = Stage::ALL
            .iter()
            .filter(|stage| trace.event(**stage).is_some())
            .map(|stage| stage.name())
            .collect();
        let why =
            if trace.ambiguous { "identical packets under way" } else { "no other event belongs to it" };
        say(&format!("not matched: {}: {why}", stages.join(", ")));
    }
    let count = unmatched().count();
    if count > UNMATCHED_MAX {
        say(&format!("not matched: {} more", count - UNMATCHED_MAX));
    }
}
