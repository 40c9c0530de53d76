//! A whole run: set-up, the four tests, output and clean-up.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use sys::frames::FrameReceiver;
use sys::poll::PollSet;
use sys::signals::Signals;

use crate::control::{Switch, Tools, descriptor_limit, descriptors};
use crate::devices::{Devices, Exit, device_exists};
use crate::guard::{self, Guard};
use crate::measure::{Numbers, Task, measure};
use crate::model::{DaemonResources, Idle, Measurement, PortRow, Run, Settings, TEXT_BYTES_MAX};
use crate::options::{Options, Plan, Target, Test};
use crate::stats::Summary;
use crate::{plot, table};

const PROGRAM: &str = "sluice upcall-bench";
/// Makes each packet a miss: a move to a register unwildcards its source, so the megaflow matches the source
/// address.
const MISS_RULE: &str = "priority=1,ip,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],controller,local";
/// One flow per port, whose packets also go to the slow path.
const USER_RULE: &str = "priority=1,ip,actions=controller,local";
/// Probes of the trial before the tests.
const TRIAL: u32 = 64;
/// Packets per port and turn in the test of all ports: changes on the machine over time then affect all ports
/// alike.
const TURN_PACKETS: u32 = 100;
/// Maximum delay of counters.
const COUNTERS_LIMIT: Duration = Duration::from_secs(5);
/// Silence required from the switch before a test, and maximum wait for it.
const QUIET: Duration = Duration::from_secs(1);
const DRAIN_LIMIT: Duration = Duration::from_secs(120);
/// Maximum time for a dying daemon to disappear.
const DEATH_LIMIT: Duration = Duration::from_secs(3);
/// Descriptors reserved for other uses of a daemon.
const DESCRIPTORS_SPARE: u64 = 64;
/// Exit code of a program that Ctrl-C ended.
const EXIT_INTERRUPTED: u8 = 130;

/// Set by SIGINT, SIGTERM and SIGHUP.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

/// Blocks the signals and records their arrival: results so far are printed, and everything is removed.
fn watch_signals() -> Result<()> {
    let signals = Signals::hold().context("cannot block signals")?;
    let watch = move || {
        loop {
            let mut set = PollSet::new();
            set.add(signals.fd(), false);
            match set.wait(None).and_then(|_| signals.next()) {
                Ok(Some(_)) => INTERRUPTED.store(true, Relaxed),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch)?;
    Ok(())
}

/// The set-up of a measurement.
struct Lab<'t> {
    switch: Option<Switch<'t>>,
    devices: Devices,
    plan: Plan,
    options: &'t Options,
    numbers: Numbers,
    flows_before: u64,
    /// Reason of an early end.
    failure: Option<anyhow::Error>,
}

impl Lab<'_> {
    fn task(&self, port: u16, probes: u32) -> Task {
        let interval_ns = self.plan.interval_ns;
        Task { port, probes, interval_ns, load: None, one_flow: self.options.user_actions }
    }

    fn lookups(&self) -> Option<crate::control::Lookups> {
        self.switch.as_ref()?.lookups().ok()
    }

    /// Measures, with the counters of the switch and the devices over the same time.
    fn measure(
        &mut self,
        task: &Task,
        receiver: &FrameReceiver,
        bar: &ProgressBar,
        counted: bool,
    ) -> Result<Measurement> {
        Ok(self.measure_each(task, receiver, bar, counted)?.0)
    }

    /// Measures likewise, with all delays in ns.
    fn measure_each(
        &mut self,
        task: &Task,
        receiver: &FrameReceiver,
        bar: &ProgressBar,
        counted: bool,
    ) -> Result<(Measurement, Vec<u64>)> {
        let sent_before = bar.position();
        let before =
            if counted { Some((self.lookups(), self.devices.counters(task.port.into())?)) } else { None };
        let mut died = false;
        let switch = self.switch.as_ref();
        let mut watch = |sent: u64| {
            bar.set_position(sent_before + sent);
            died = died || switch.is_some_and(|switch| !switch.alive());
            !died && !interrupted()
        };
        let socket = (self.devices.sender(), self.devices.indexes());
        let outcome = measure(task, &mut self.numbers, socket, receiver, &mut watch)?;
        self.failure = outcome.failure;
        let mut measured = outcome.measured;
        bar.set_position(sent_before + measured.sent + measured.unsent);
        if task.load.is_some() && self.failure.is_none() {
            // Packets in flight are not lost.
            let _judged_by_the_next = self.drain();
        }
        if let Some((lookups, (exit, host))) = before
            && let Ok((exit_now, host_now)) = self.devices.counters(task.port.into())
        {
            let arrived = exit_now.rx_packets.saturating_sub(exit.rx_packets);
            measured.dropped_before_switch = host_now.tx_dropped.saturating_sub(host.tx_dropped);
            if let Some(load) = &mut measured.load {
                load.delivered = arrived.saturating_sub(measured.arrived);
            }
            let both = lookups.zip(self.lookups());
            measured.misses = both.map(|(before, now)| now.missed.saturating_sub(before.missed));
        }
        Ok((measured, outcome.delays_ns))
    }

    /// Reason to end a test: the daemon's death, the user, or a device.
    fn ended(&mut self) -> Result<()> {
        // The devices of a dying daemon disappear before it does.
        let begin = Instant::now();
        let alive = |lab: &Lab<'_>| lab.switch.as_ref().is_some_and(Switch::alive);
        while self.failure.is_some() && alive(self) && begin.elapsed() < DEATH_LIMIT {
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(switch) = self.switch.as_ref().filter(|switch| !switch.alive()) {
            bail!("the daemon (process {}) is gone; what was measured before stands", switch.pid);
        }
        ensure!(!interrupted(), "interrupted; what was measured before stands");
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Sends some packets and checks that they return and are of the expected kind: misses, or hits of one
    /// flow.
    fn trial(&mut self) -> Result<()> {
        let receiver = self.devices.receiver(0)?;
        let quiet = ProgressBar::hidden();
        if self.options.user_actions {
            // The first packet creates the flow.
            self.measure(&self.task(0, TRIAL), &receiver, &quiet, false)?;
        }
        let before = self.switch.as_ref().map(Switch::lookups).transpose()?;
        let measured = self.measure(&self.task(0, TRIAL), &receiver, &quiet, false)?;
        self.ended()?;
        let bridge = &self.plan.bridge;
        ensure!(
            measured.arrived > 0,
            "none of {} packets came back by {bridge}: is the switch's datapath another than {}, or does another \
             rule or filter stand in the way?",
            measured.sent,
            self.options.datapath_type
        );
        let Some((switch, before)) = self.switch.as_ref().zip(before) else { return Ok(()) };
        let begin = Instant::now();
        loop {
            let now = switch.lookups()?;
            let misses = now.missed.saturating_sub(before.missed) + now.lost.saturating_sub(before.lost);
            let hits = now.hit.saturating_sub(before.hit);
            let good = if self.options.user_actions { hits } else { misses };
            // One that was lost on the way, on a loaded machine, says nothing.
            if good >= measured.arrived {
                return Ok(());
            }
            if begin.elapsed() > COUNTERS_LIMIT {
                let (wanted, other) =
                    if self.options.user_actions { ("hits", "") } else { ("misses", MISS_RULE) };
                bail!(
                    "of {} packets that came back the switch counted {misses} as misses and {hits} as hits, so {wanted} \
                     would not be what is measured {other}",
                    measured.arrived
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the switch sends nothing more; returns whether it is silent.
    fn drain(&mut self) -> Result<bool> {
        let begin = Instant::now();
        let (mut seen, mut quiet_since) = (self.devices.counters(0)?.0, Instant::now());
        while quiet_since.elapsed() < QUIET {
            let gone = self.switch.as_ref().is_some_and(|switch| !switch.alive());
            if gone || interrupted() || begin.elapsed() > DRAIN_LIMIT {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(50));
            let now = self.devices.counters(0)?.0;
            if now != seen {
                (seen, quiet_since) = (now, Instant::now());
            }
        }
        Ok(true)
    }

    /// Waits until an earlier test has no packets in flight, and its flows have expired.
    fn settle(&mut self, run: &mut Run) -> Result<()> {
        let drained = self.drain();
        self.ended()?;
        if !drained? {
            run.notes.push("packets of an earlier test still came when a test began".into());
        }
        let Some(switch) = &self.switch else { return Ok(()) };
        if !switch.wait_for_expiry(self.flows_before, &interrupted)? && !interrupted() {
            run.notes.push("flows of an earlier test were still installed when a test began".into());
        }
        self.ended()
    }
}

fn bar(what: &str, length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{msg:22} {wide_bar} {pos}/{len} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what.to_string());
    bar
}

fn test_one(lab: &mut Lab<'_>, run: &mut Run) -> Result<()> {
    let receiver = lab.devices.receiver(0)?;
    let task = lab.task(0, lab.plan.packets);
    let bar = bar("one port", task.probes.into());
    run.one = Some(lab.measure(&task, &receiver, &bar, true)?);
    bar.finish_and_clear();
    lab.ended()
}

fn test_all(lab: &mut Lab<'_>, run: &mut Run) -> Result<()> {
    let ports = usize::from(lab.plan.ports);
    let mut seen: Vec<PortResults> = (0..ports).map(|_| PortResults::default()).collect();
    let ended = visit_all(lab, &mut seen);
    let rows = (0..).zip(seen).filter(|(_, seen)| seen.sent > 0);
    run.all = Some(rows.map(|(port, seen)| seen.row(port)).collect());
    ended
}

/// Results of one port in the test of all ports.
#[derive(Default)]
struct PortResults {
    sent: u64,
    arrived: u64,
    delays_ns: Vec<u64>,
}

impl PortResults {
    fn row(self, port: u64) -> PortRow {
        let delays = Summary::of(self.delays_ns);
        PortRow {
            port,
            sent: self.sent,
            arrived: self.arrived,
            avg_ns: delays.avg_ns,
            p50_ns: delays.p50_ns,
            p99_ns: delays.p99_ns,
        }
    }
}

/// Sends to each port, [`TURN_PACKETS`] at a time, round after round.
fn visit_all(lab: &mut Lab<'_>, seen: &mut [PortResults]) -> Result<()> {
    let receiver = lab.devices.receiver(0)?;
    let packets = lab.plan.port_packets;
    let bar = bar("all ports", u64::from(packets) * u64::from(lab.plan.ports));
    let mut left = packets;
    while left > 0 {
        let turn = left.min(TURN_PACKETS);
        for (port, seen) in (0..).zip(&mut *seen) {
            let (measured, delays_ns) = lab.measure_each(&lab.task(port, turn), &receiver, &bar, false)?;
            seen.sent += measured.sent;
            seen.arrived += measured.arrived;
            seen.delays_ns.extend(delays_ns);
            lab.ended()?;
        }
        left -= turn;
    }
    bar.finish_and_clear();
    Ok(())
}

fn test_load(lab: &mut Lab<'_>, run: &mut Run) -> Result<()> {
    let port = lab.plan.ports / 2;
    let receiver = lab.devices.receiver(port)?;
    let all = (0..lab.plan.ports).collect();
    let task = Task { load: Some((lab.plan.load_rate, all)), ..lab.task(port, lab.plan.load_packets) };
    let bar = bar("loaded port", task.probes.into());
    run.load = Some(lab.measure(&task, &receiver, &bar, true)?);
    bar.finish_and_clear();
    lab.ended()
}

fn test_idle(lab: &mut Lab<'_>, run: &mut Run) -> Result<()> {
    let port = lab.plan.ports / 2;
    let receiver = lab.devices.receiver(port)?;
    let alone = lab.task(port, lab.plan.load_packets);
    let bar = bar("idle port", u64::from(alone.probes) * 2);
    let unloaded = lab.measure(&alone, &receiver, &bar, true)?;
    let idle = run.idle.insert(Idle { unloaded, loaded: None });
    lab.ended()?;
    let others = (0..lab.plan.ports).filter(|other| *other != port).collect();
    let task = Task { load: Some((lab.plan.load_rate, others)), ..alone };
    idle.loaded = Some(lab.measure(&task, &receiver, &bar, true)?);
    bar.finish_and_clear();
    lab.ended()
}

fn read_saved(path: &Path) -> Result<Run> {
    let delay_of = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("{delay_of}: cannot read it"))?.len();
    ensure!(size <= TEXT_BYTES_MAX as u64, "{delay_of}: larger than {} MB", TEXT_BYTES_MAX >> 20);
    let text = std::fs::read_to_string(path).with_context(|| format!("{delay_of}: cannot read it"))?;
    Run::from_text(&text).map_err(|why| anyhow::anyhow!("{delay_of}: {why}"))
}

fn new_run(options: &Options, plan: &Plan, switch: Option<&Switch<'_>>) -> Run {
    let target = match switch {
        None => "bridge",
        Some(switch) if switch.is_sluice => "sluice",
        Some(_) => "ovs",
    };
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let kernel = read("/proc/sys/kernel/osrelease");
    Run {
        name: options.name.clone().unwrap_or_else(|| target.into()),
        target: target.into(),
        version: switch.map_or_else(|| format!("Linux {kernel}"), |switch| switch.version.clone()),
        when_s: sys::clock::wall_ms() / 1000,
        kernel,
        processors: sys::thread::online_cpus() as u64,
        settings: Settings {
            ports: plan.ports.into(),
            datapath_type: if switch.is_some() { options.datapath_type.clone() } else { String::new() },
            user_actions: options.user_actions,
            interval_ns: plan.interval_ns,
            load_rate: plan.load_rate,
        },
        ..Run::default()
    }
}

/// Creates bridge and devices; also returns the daemon's open descriptors before that.
fn build<'t>(
    options: &'t Options,
    plan: &Plan,
    switch: Option<Switch<'t>>,
) -> Result<(Lab<'t>, Option<u64>)> {
    let bridge = &plan.bridge;
    let mut open_before = None;
    if let Some(switch) = &switch {
        let open = descriptors(switch.pid).ok().map(|(all, ..)| all);
        if let (Some(open), Some(limit)) = (open, descriptor_limit(switch.pid)) {
            ensure!(
                open + u64::from(plan.ports) + DESCRIPTORS_SPARE <= limit,
                "--ports {}: the daemon may have {limit} descriptors open and has {open}; raise its limit (LimitNOFILE \
                 of its unit, ulimit -n) or ask for fewer ports",
                plan.ports
            );
        }
        open_before = open;
    }
    let exit = if switch.is_some() { Exit::Local } else { Exit::Sink };
    let spinner = ProgressBar::new_spinner().with_message(format!("creating {} ports", plan.ports));
    spinner.enable_steady_tick(Duration::from_millis(200));
    let devices = Devices::new(plan.ports, bridge, exit)?;
    let numbers = Numbers::from_seed(sys::random::u64().context("no random numbers")?);
    let mut lab =
        Lab { switch, devices, plan: plan.clone(), options, numbers, flows_before: 0, failure: None };
    match &lab.switch {
        None => lab.devices.create_linux_bridge()?,
        Some(switch) => {
            switch.add_bridge(bridge, &lab.devices.ports)?;
            lab.devices.bring_local_up()?;
            switch.set_rule(bridge, if options.user_actions { USER_RULE } else { MISS_RULE })?;
            lab.flows_before = switch.lookups()?.flows;
        }
    }
    spinner.finish_and_clear();
    Ok((lab, open_before))
}

fn run_tests(lab: &mut Lab<'_>, run: &mut Run, open_before: Option<u64>) -> Result<()> {
    if let Some((switch, descriptors_before)) = lab.switch.as_ref().zip(open_before) {
        let (descriptors, sockets, threads) = descriptors(switch.pid)?;
        run.daemon = Some(DaemonResources {
            pid: switch.pid.into(),
            descriptors_before,
            descriptors,
            sockets,
            threads,
        });
    }
    lab.trial()?;
    type Work = for<'l, 't, 'r> fn(&'l mut Lab<'t>, &'r mut Run) -> Result<()>;
    let tests: [(Test, Work); 4] =
        [(Test::One, test_one), (Test::All, test_all), (Test::Load, test_load), (Test::Idle, test_idle)];
    for (test, work) in tests {
        if lab.options.tests.contains(&test) {
            lab.settle(run)?;
            work(lab, run)?;
        }
    }
    Ok(())
}

/// Removes everything; dismisses the guard only after success.
fn take_down(lab: Lab<'_>) -> Result<()> {
    let bridge = match &lab.switch {
        None => Devices::remove_linux_bridge(&lab.plan.bridge),
        Some(switch) => switch.remove_bridge(&lab.plan.bridge),
    };
    let devices = lab.devices.remove();
    let left = || format!("the bridge {} is still in the database; the next run removes it", lab.plan.bridge);
    bridge.with_context(left).and(devices)
}

fn show(options: &Options, run: &Run, others: &[Run], width: usize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let to_output = options.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = options.json.as_deref().filter(|_| !to_output) {
        std::fs::write(path, run.to_text())
            .with_context(|| format!("{}: cannot write it", path.display()))?;
    }
    if let Some(path) = &options.plot {
        let runs: Vec<&Run> = std::iter::once(run).chain(others).collect();
        std::fs::write(path, plot::picture(&runs))
            .with_context(|| format!("{}: cannot write it", path.display()))?;
    }
    let text = if to_output {
        run.to_text()
    } else {
        let remarks = table::remarks(run);
        table::table(run, others, width)
            + &remarks.iter().map(|line| format!("! {line}\n")).collect::<String>()
    };
    // A reader that went away is no error.
    let _unwritten = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(())
}

fn work(options: &Options, tools: &dyn Tools, width: usize) -> Result<()> {
    let plan = options.plan()?;
    let others = options.compare.iter().map(|path| read_saved(path)).collect::<Result<Vec<Run>>>()?;
    watch_signals()?;
    if let Some(cpu) = options.cpu {
        sys::thread::pin_thread(cpu)?;
    }
    let switch = if options.target == Target::Bridge {
        None
    } else {
        let rundir = options.run_directory();
        let switch = Switch::find(tools, &rundir, options.db.as_deref(), &options.datapath_type)?;
        let wanted = match options.target {
            Target::Sluice => switch.is_sluice,
            Target::Ovs => !switch.is_sluice,
            Target::Auto | Target::Bridge => true,
        };
        ensure!(wanted, "{}: the daemon is another: {}", rundir.display(), switch.version);
        switch.sweep()?;
        Some(switch)
    };
    let bridge = &plan.bridge;
    let taken =
        device_exists(bridge)? || switch.as_ref().map_or(Ok(false), |switch| switch.has_bridge(bridge))?;
    ensure!(!taken, "--bridge {bridge}: a bridge or device of this name is there already");
    let mut run = new_run(options, &plan, switch.as_ref());
    let guard = Guard::start(options, bridge)?;
    // On failure during set-up the guard cleans up.
    let (mut lab, open_before) = match build(options, &plan, switch) {
        Ok(built) => built,
        Err(error) => {
            guard.act();
            return Err(error);
        }
    };
    let result = run_tests(&mut lab, &mut run, open_before);
    if let Err(error) = &result {
        run.notes.push(format!("{error:#}"));
    }
    let removed = take_down(lab);
    // Leftovers that this process could not remove, the guard could not either.
    guard.dismiss();
    let result = match (result, removed) {
        (Err(error), Err(left)) => Err(anyhow::anyhow!("{error:#}; {left:#}")),
        (result, removed) => result.and(removed),
    };
    let measured = run.one.is_some() || run.all.is_some() || run.load.is_some() || run.idle.is_some();
    let delay_of = if measured { show(options, &run, &others, width) } else { Ok(()) };
    result.and(delay_of)
}

/// Runs it, for a terminal with that many columns; returns the exit code.
pub fn main(options: &Options, tools: &dyn Tools, width: usize) -> u8 {
    let result = if options.guard { guard::keep(options, tools) } else { work(options, tools, width) };
    match result {
        Ok(()) => 0,
        Err(error) => {
            // Standard error may be closed.
            let _unwritten = writeln!(std::io::stderr(), "{PROGRAM}: {error:#}");
            if interrupted() { EXIT_INTERRUPTED } else { 1 }
        }
    }
}
