//! `sluice top`: live statistics of the switch, from one reading of `sluice/status` per refresh.
//!
//! A separate thread reads, so keys work while a daemon is slow to reply. An unreachable daemon is queried
//! again at each refresh.

pub(crate) mod model;
mod screen;
pub(crate) mod text;

#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::appctl::DEFAULT_TARGET;
use crate::remote::{EXIT_TIMED_OUT, TimedOut, complain, print};
use crate::status;
use crate::status_model::StatusModel;
use model::{Follower, Orders, Sorting, View};
use screen::Screen;

const PROGRAM: &str = "sluice top";
/// Maximum delay of keys while waiting for a reply.
const REPLY_POLL: Duration = Duration::from_millis(20);

/// Arguments of `sluice top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds between two refreshes
    #[arg(short, long, default_value = "1", value_parser = parse_delay)]
    delay: Duration,
    /// Print one plain screen after one delay and exit, the default without a terminal
    #[arg(long)]
    once: bool,
    /// Print that screen as JSON instead; unknown values are null
    #[arg(long)]
    json: bool,
    /// Sort by the column of this heading, such as 'Rx bit/s' or 'Busy'
    #[arg(short, long)]
    sort: Option<String>,
    /// The daemon: its name, or the path of its control socket
    #[arg(short, long, default_value = DEFAULT_TARGET)]
    target: String,
    /// Timeout for a reply in seconds; 0 waits for ever
    #[arg(long, default_value_t = 10)]
    timeout: u32,
}

/// Seconds between two refreshes.
pub(crate) fn parse_delay(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    match seconds.filter(|s| (0.1..=3600.0).contains(s)) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err(format!("{text}: not a number of seconds from 0.1 to 3600")),
    }
}

/// Runs it; returns the exit code.
pub(crate) fn main(options: &Options) -> u8 {
    match run(options) {
        Ok(()) => 0,
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let by = sorting(options.sort.as_deref())?;
    if options.once || options.json || !std::io::stdout().is_terminal() {
        let view = one_interval(options)?;
        print(&if options.json { text::json(&view) } else { text::plain(&view, by) });
        return Ok(());
    }
    // Reports an unreachable daemon before taking over the screen.
    let first = read(&options.target, options.timeout)?;
    let mut screen = Screen::new(by);
    let mut terminal = ratatui::try_init().context("cannot set up the terminal")?;
    let outcome = live(&mut terminal, &mut screen, options, first);
    ratatui::restore();
    outcome
}

/// Sort orders for a heading, of all tables that have it.
fn sorting(heading: Option<&str>) -> Result<Orders> {
    let Some(heading) = heading else { return Ok(Orders::default()) };
    let tables = [text::threads, text::zones, text::ports];
    let [threads, zones, ports] = tables.map(|table| table(&View::default()).headings);
    let by = |headings: &[&str]| Sorting {
        column: headings.iter().position(|h| h.eq_ignore_ascii_case(heading)),
        reversed: false,
    };
    let found = Orders { threads: by(&threads), zones: by(&zones), ports: by(&ports) };
    if found == Orders::default() {
        let all = [threads, zones, ports].concat().join(", ");
        bail!("--sort {heading}: no such column; there are: {all}");
    }
    Ok(found)
}

fn read(target: &str, timeout_s: u32) -> Result<StatusModel> {
    StatusModel::from_json(&status::read(target, timeout_s)?).map_err(anyhow::Error::msg)
}

fn one_interval(options: &Options) -> Result<View> {
    let (start, mut follower) = (Instant::now(), Follower::default());
    follower.take(start.elapsed(), Ok(read(&options.target, options.timeout)?));
    std::thread::sleep(options.delay);
    let now = read(&options.target, options.timeout)?;
    follower.take(start.elapsed(), Ok(now));
    if let Some(notice) = &follower.notice {
        complain(PROGRAM, notice);
    }
    Ok(follower.view)
}

/// Result and time of a reading.
type Reading = (Instant, Result<StatusModel, String>);

/// Starts the reader thread: one reading per request.
fn reader(options: &Options) -> (Sender<()>, Receiver<Reading>) {
    let (ask, asked) = channel();
    let (reply, readings) = channel();
    let (target, timeout_s) = (options.target.clone(), options.timeout);
    std::thread::spawn(move || {
        for () in asked {
            let reading = read(&target, timeout_s).map_err(|e| format!("{e:#}"));
            if reply.send((Instant::now(), reading)).is_err() {
                return;
            }
        }
    });
    (ask, readings)
}

/// Shows and refreshes the screen until it is over.
fn live(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    options: &Options,
    first: StatusModel,
) -> Result<()> {
    let start = Instant::now();
    let (ask, readings) = reader(options);
    screen.follower.take(Duration::ZERO, Ok(first));
    let (mut next, mut waiting, mut changed) = (start + options.delay, false, true);
    while !screen.over {
        if !screen.paused && !waiting && Instant::now() >= next {
            ask.send(()).context("the reading thread has ended")?;
            (next, waiting) = (Instant::now() + options.delay, true);
        }
        if let Ok((at, reading)) = readings.try_recv() {
            waiting = false;
            if !screen.paused {
                screen.follower.take(at - start, reading);
                changed = true;
            }
        }
        if changed {
            terminal.draw(|frame| screen.draw(frame)).context("cannot draw")?;
        }
        let idle = if screen.paused { options.delay } else { next.saturating_duration_since(Instant::now()) };
        changed = event::poll(if waiting { REPLY_POLL } else { idle }).context("cannot read keys")?;
        if changed
            && let Event::Key(key) = event::read().context("cannot read keys")?
            && key.kind == KeyEventKind::Press
        {
            screen.key(key);
        }
    }
    Ok(())
}
