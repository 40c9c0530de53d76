//! The order of a run: sides built for each row, and progress.

use crate::Options;
use crate::daemons::{absolute, find_sluiced, skip, stock_dpdk};
use crate::guard::Guard;
use crate::hugepages::Hugepages;
use crate::lab::{DPDK_PAGES, Lab};
use crate::overlay::{Design, Overlay};
use crate::report::Row;
use crate::rows::ovn::{self, Size};
use crate::rows::rules::{self, RuleSide};
use crate::rows::{
    Effort, Runs, ablation, connections, first, idle, pcap, restart, setup, streams, tunnel, veth,
};
use crate::sides::{Build, Instance, Joint, Side};
use crate::tunnels::Tunnel;
use crate::{tunnels, works};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::time::Instant;
use testkit::TempDir;

/// Values of `--only`.
pub(crate) const THEMES: [&str; 18] = [
    "pcap", "setup", "pipeline", "ct", "tunnel", "rules", "ovn", "first", "lookups", "udp", "afxdp", "delay",
    "tcp", "udp1400", "bond", "idle", "restart", "ablation",
];
/// Values of `--peers`.
pub(crate) const PEERS: [&str; 3] = ["dpdk", "ovs", "bridge"];
/// Ports of the switches with many.
const MANY_PORTS: usize = 100;

/// Placement on processors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpus {
    /// Generator and sink; for daemons without a network, all threads that do not forward.
    pub(crate) generator: usize,
    /// Daemons, their forwarding threads at least.
    pub(crate) switch: usize,
}

/// A run.
struct Session<'a> {
    options: &'a Options,
    guard: &'a Guard,
    cpus: Cpus,
    effort: Effort,
    sluiced: PathBuf,
    before: Option<PathBuf>,
    runs: Runs,
    rows: Vec<Row>,
    progress: Progress,
}

/// Progress of a run: parts, each with its approximate number of measurements.
struct Progress {
    start: Instant,
    parts: Vec<(&'static str, u32)>,
    next: usize,
}

impl Progress {
    fn new(options: &Options) -> Progress {
        let flows = options.flows.len() as u32;
        let all: [(&[&str], &'static str, u32); 14] = [
            (&["pcap", "lookups", "setup"], "the datapath alone", 20),
            (&["pipeline"], "pipelines that recirculate", 8),
            (&["ct"], "connection tracking", 12),
            (&["tunnel"], "tunnels", 15),
            (&["ablation"], "the datapath alone, with parts of it off", 16),
            (&["rules"], "rules", 20),
            (&["ovn"], "rules of OVN at scale", 20),
            (&["first"], "first packets", 16),
            (&["udp", "afxdp"], "small frames between hosts", 5 * flows),
            (&["delay", "tcp", "udp1400"], "delay and streams between hosts", 15),
            (&["bond"], "a bond between bridges", 8),
            (&["ablation"], "hosts, with parts of the switch off", 6),
            (&["delay", "idle"], "a hundred ports", 5),
            (&["restart"], "restarts", 4),
        ];
        let wanted = |themes: &[&str]| themes.iter().any(|t| options.wants(t));
        let parts = all.iter().filter(|p| wanted(p.0)).map(|p| (p.1, p.2)).collect();
        Progress { start: Instant::now(), parts, next: 0 }
    }

    /// Announces the next part.
    fn part(&mut self, effort: Effort) {
        let Some((title, _)) = self.parts.get(self.next) else { return };
        let measurements: u32 = self.parts[self.next..].iter().map(|p| p.1).sum();
        // Set-up and queries take about as long as warm-up.
        let each_s = effort.time.as_secs_f64() + 2.0 * effort.warm_up.as_secs_f64() + 0.3;
        let left_s = f64::from(measurements) * effort.rounds as f64 * each_s;
        self.next += 1;
        eprintln!(
            "[{} of {}] {title}; {:.0} s gone, about {left_s:.0} s to go",
            self.next,
            self.parts.len(),
            self.start.elapsed().as_secs_f64()
        );
    }
}

/// Measures the selected rows; prints each when done. Returns the rows, and the reasons for missing ones.
///
/// # Errors
/// If nothing can be measured.
pub(crate) fn all(options: &Options, guard: &Guard, cpus: Cpus) -> Result<(Vec<Row>, Vec<String>)> {
    if !testkit::programs_or_skip("bench", &["taskset", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"]) {
        bail!("without those nothing can be measured: scripts/setup.sh bench installs them");
    }
    let mut session = Session {
        options,
        guard,
        cpus,
        effort: options.effort(),
        sluiced: find_sluiced(options.sluiced.clone())?,
        before: options.before.as_deref().map(absolute).transpose()?,
        runs: Runs::default(),
        rows: Vec::new(),
        progress: Progress::new(options),
    };
    // A failure in one part affects neither the results nor the runs of the others.
    let parts = [
        Session::datapath_alone,
        Session::pipeline,
        Session::tracked,
        Session::tunnels,
        Session::ablation_alone,
        Session::rules,
        Session::ovn,
        Session::first_packets,
        Session::between_hosts,
        Session::bonds,
        Session::ablation_hosts,
        Session::many_ports,
        Session::restarts,
    ];
    let failures = parts.into_iter().filter_map(|part| part(&mut session).err()).map(|e| format!("{e:#}"));
    let failures: Vec<String> = failures.inspect(|why| eprintln!("bench: {why}")).collect();
    Ok((session.rows, failures))
}

/// Runs `work` on a new thread bound to a processor: programs started elsewhere are not bound.
fn pinned<T: Send>(cpu: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let bound = || {
        sys::thread::pin_thread(cpu)?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(bound).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl<'a> Session<'a> {
    fn done(&mut self, new: impl IntoIterator<Item = Row>) {
        for row in new {
            println!("{}", row.text());
            self.rows.push(row);
        }
    }

    fn wants_any(&self, themes: &[&str]) -> bool {
        themes.iter().any(|t| self.options.wants(t))
    }

    fn datapath_alone(&mut self) -> Result<()> {
        if !self.wants_any(&["pcap", "lookups", "setup"]) {
            return Ok(());
        }
        self.progress.part(self.effort);
        let folder = TempDir::new("pcap")?;
        let cpu = self.cpus.switch;
        let mut labs = vec![Lab::sluice("sluice", &self.sluiced, &[], cpu)?];
        if self.options.wants("lookups") {
            let rows = pcap::lookups(&mut labs[0], &folder, self.effort)?;
            self.done(rows);
        }
        if !self.wants_any(&["pcap", "setup"]) {
            return Ok(());
        }
        if let Some(before) = &self.before {
            labs.push(Lab::sluice("sluice-before", before, &[], cpu)?);
        }
        // Returned after the daemons have ended: declared first.
        let _pages;
        let mut labs = labs;
        _pages = self.add_dpdk(&mut labs, &[]);
        if self.options.wants("setup") {
            let work = works::own_megaflows(&folder, pcap::many_flows(self.options.quick))?;
            let rows = setup::rows(&mut labs, &work, self.effort);
            self.done(rows);
        }
        let works =
            if self.options.wants("pcap") { pcap::works(&folder, self.options.quick)? } else { Vec::new() };
        for work in works {
            let caches = |lab: &Lab| if lab.name == "ovs-dpdk" { vec![true, false] } else { vec![true] };
            let rows = pcap::work_rows(&mut labs, &work, caches, "pcap", self.effort)?;
            self.done(rows);
        }
        Ok(())
    }

    /// Adds the stock daemon with DPDK, if available, and its memory, which is returned on drop.
    fn add_dpdk(&self, labs: &mut Vec<Lab>, args: &[&str]) -> Option<Hugepages<'a>> {
        if !self.options.peer("dpdk") {
            return None;
        }
        let (cpu, other) = (self.cpus.switch, self.cpus.generator);
        let pages = stock_dpdk().and_then(|()| Hugepages::reserve(DPDK_PAGES, self.guard));
        match pages.and_then(|pages| Ok((pages, Lab::dpdk("ovs-dpdk", args, cpu, other)?))) {
            Ok((pages, lab)) => {
                labs.push(lab);
                Some(pages)
            }
            Err(why) => {
                skip("ovs-dpdk", &why);
                None
            }
        }
    }

    /// Separate daemons: the recirculating action is available only in dummy mode.
    fn pipeline(&mut self) -> Result<()> {
        if !self.options.wants("pipeline") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let folder = TempDir::new("pipeline")?;
        let (cpu, dummy) = (self.cpus.switch, "--enable-dummy");
        // Returned after the daemons have ended: declared first.
        let _pages;
        let mut labs = vec![Lab::sluice("sluice", &self.sluiced, &[dummy.into()], cpu)?];
        if let Some(before) = &self.before {
            labs.push(Lab::sluice("sluice-before", before, &[dummy.into()], cpu)?);
        }
        _pages = self.add_dpdk(&mut labs, &[dummy]);
        for recirculations in 0..=pcap::RECIRCULATIONS_MAX {
            let work = works::pipeline(&folder, 1000, recirculations)?;
            let caches = |lab: &Lab| if lab.name == "ovs-dpdk" { vec![true, false] } else { vec![true] };
            let rows = pcap::work_rows(&mut labs, &work, caches, "pipeline", self.effort)?;
            self.done(rows);
        }
        Ok(())
    }

    fn tracked(&mut self) -> Result<()> {
        if !self.options.wants("ct") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let folder = TempDir::new("ct")?;
        let cpu = self.cpus.switch;
        // Returned after the daemons have ended: declared first.
        let _pages;
        let mut labs = vec![Lab::sluice("sluice", &self.sluiced, &[], cpu)?];
        if let Some(before) = &self.before {
            labs.push(Lab::sluice("sluice-before", before, &[], cpu)?);
        }
        _pages = self.add_dpdk(&mut labs, &[]);
        let many = pcap::many_flows(self.options.quick);
        for (flows, translated) in [(1000, false), (many, false), (many, true)] {
            let work = works::tracked(&folder, flows, translated)?;
            let rows = pcap::work_rows(&mut labs, &work, |_| vec![true], "ct", self.effort)?;
            self.done(rows);
            // Connections of one row take room in the caches from the next.
            labs.iter_mut().try_for_each(|lab| lab.awake(connections::end_idle))?;
        }
        let row = connections::begin(&mut labs, &folder, self.effort)?;
        self.done([row]);
        drop(labs);
        self.beside_untracked(&folder)
    }

    /// Tracked traffic beside the same without tracking, or without other connections.
    fn beside_untracked(&mut self, folder: &TempDir) -> Result<()> {
        let mut labs = vec![Lab::sluice("sluice", &self.sluiced, &[], self.cpus.switch)?];
        if let Some(before) = &self.before {
            labs.push(Lab::sluice("sluice-before", before, &[], self.cpus.switch)?);
        }
        let work = connections::beside_new(works::tracked(folder, 1000, false)?);
        let row = connections::load(&mut labs, &work, self.cpus.generator, self.effort)?;
        self.done([row]);
        drop(labs);
        if testkit::programs_or_skip("the row of a tracked stream", &["iperf3"]) {
            let instances = self.instances(&[Side::Sluice, Side::Before], 2)?;
            self.done([connections::tcp(&instances, self.effort)]);
        }
        Ok(())
    }

    fn tunnels(&mut self) -> Result<()> {
        if !self.options.wants("tunnel") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let folder = TempDir::new("tunnel")?;
        let cpu = self.cpus.switch;
        // Returned after the daemons have ended: declared first.
        let _pages;
        let mut labs = vec![Lab::sluice("sluice", &self.sluiced, &[], cpu)?];
        if let Some(before) = &self.before {
            labs.push(Lab::sluice("sluice-before", before, &[], cpu)?);
        }
        _pages = self.add_dpdk(&mut labs, &[]);
        let mut works = Vec::new();
        for tunnel in [Tunnel::Push, Tunnel::Pop] {
            works.push(tunnels::vxlan(&folder, 1000, tunnel)?);
        }
        works.push(tunnels::l3_pipeline(&folder, 1000)?);
        for work in works {
            let caches = |lab: &Lab| if lab.name == "ovs-dpdk" { vec![true, false] } else { vec![true] };
            let rows = pcap::work_rows(&mut labs, &work, caches, "tunnel", self.effort)?;
            self.done(rows);
        }
        drop(labs);
        self.overlays()
    }

    /// TCP across two switches of each side.
    fn overlays(&mut self) -> Result<()> {
        if !testkit::programs_or_skip("the row of TCP across an overlay", &["iperf3"]) {
            return Ok(());
        }
        // The kernel alone is no overlay host here.
        let sides = [Side::Sluice, Side::Before, Side::Ovs, Side::OvsTso, Side::Bridge];
        for (design, sides) in [(Design::Tunnel, &sides[..]), (Design::Host, &sides[..4])] {
            let mut overlays = Vec::new();
            for side in sides.iter().copied().filter(|side| self.wants_side(*side)) {
                match Overlay::start(side, self.program(side), design) {
                    Ok(overlay) => overlays.push(overlay),
                    Err(e) if side == Side::Sluice => return Err(e),
                    Err(e) => skip(&side.name(), &e),
                }
            }
            self.done([tunnel::tcp(&overlays, design, self.effort)]);
        }
        Ok(())
    }

    fn ablation_alone(&mut self) -> Result<()> {
        if self.options.wants("ablation") {
            self.progress.part(self.effort);
            let folder = TempDir::new("pcap")?;
            let rows = ablation::in_process(&self.sluiced, self.cpus.switch, &folder, self.effort)?;
            self.done(rows);
        }
        Ok(())
    }

    /// Daemons without a network of their own.
    fn rule_sides(&self) -> Vec<RuleSide> {
        let mut sides = vec![RuleSide::Sluice("sluice", self.sluiced.clone())];
        sides.extend(self.before.clone().map(|before| RuleSide::Sluice("sluice-before", before)));
        sides.extend(self.options.peer("ovs").then_some(RuleSide::Ovs));
        sides
    }

    fn ovn(&mut self) -> Result<()> {
        if !self.options.wants("ovn") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let (size, changes) = if self.options.quick { (Size::SMALL, 4) } else { (Size::LARGE, 300) };
        let rows = ovn::rows(self.rule_sides(), size, changes, self.effort)?;
        self.done(rows);
        Ok(())
    }

    fn rules(&mut self) -> Result<()> {
        if !self.options.wants("rules") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let sides = self.rule_sides();
        let count = if self.options.quick { 2000 } else { 200_000 };
        let rows = rules::rows(sides, count, self.effort);
        self.done(rows);
        Ok(())
    }

    fn first_packets(&mut self) -> Result<()> {
        if !self.options.wants("first") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let mut sides = vec![Side::Sluice];
        sides.extend(self.before.as_ref().map(|_| Side::Before));
        sides.extend(self.options.peer("ovs").then_some(Side::Ovs));
        let programs =
            first::Programs { sluiced: &self.sluiced, before: self.before.as_deref(), cpus: self.cpus };
        let rows = first::rows(&sides, &programs, self.effort, self.options.quick)?;
        self.done(rows);
        Ok(())
    }

    fn build<'b>(&self, sluiced: &'b Path, ports: usize, joint: Option<Joint>) -> Build<'b> {
        Build { sluiced, cpu: self.cpus.switch, ports, joint, managed: false }
    }

    /// Whether a side is asked for.
    fn wants_side(&self, side: Side) -> bool {
        match side {
            Side::Before => self.before.is_some(),
            Side::Ovs | Side::OvsTso | Side::OvsAfxdp => self.options.peer("ovs"),
            Side::Bridge => self.options.peer("bridge"),
            Side::Sluice | Side::SluiceAfxdp | Side::Without(_) => true,
        }
    }

    /// The program of a side of this project.
    fn program(&self, side: Side) -> &Path {
        self.before.as_ref().filter(|_| side == Side::Before).unwrap_or(&self.sluiced)
    }

    /// The available sides; reports missing ones.
    fn instances(&self, sides: &[Side], ports: usize) -> Result<Vec<Instance>> {
        self.joined_instances(sides, ports, None)
    }

    /// As [`Self::instances`], of one bridge or two joined ones.
    fn joined_instances(&self, sides: &[Side], ports: usize, joint: Option<Joint>) -> Result<Vec<Instance>> {
        self.built_instances(sides, |side| self.build(self.program(side), ports, joint))
    }

    /// As [`Self::instances`], built by `build`.
    fn built_instances<'b>(
        &self,
        sides: &[Side],
        build: impl Fn(Side) -> Build<'b>,
    ) -> Result<Vec<Instance>> {
        let mut instances = Vec::new();
        for side in sides {
            if !self.wants_side(*side) {
                continue;
            }
            match Instance::start(*side, &build(*side)) {
                Ok(instance) => instances.push(instance),
                Err(e) if *side == Side::Sluice => return Err(e),
                Err(e) => skip(&side.name(), &e),
            }
        }
        Ok(instances)
    }

    fn between_hosts(&mut self) -> Result<()> {
        let frames = self.wants_any(&["udp", "afxdp"]);
        let more = self.wants_any(&["delay", "tcp", "udp1400"]);
        if !frames && !more {
            return Ok(());
        }
        let mut sides = vec![Side::Sluice, Side::Before, Side::Ovs];
        if self.options.wants("afxdp") {
            sides.extend([Side::SluiceAfxdp, Side::OvsAfxdp]);
        }
        if self.wants_any(&["udp", "delay", "tcp", "udp1400"]) {
            sides.push(Side::Bridge);
        }
        if frames {
            self.progress.part(self.effort);
        }
        let instances = self.instances(&sides, 2)?;
        let instances: Vec<&Instance> = instances.iter().collect();
        let (effort, cpu) = (self.effort, self.cpus.generator);
        if frames {
            for flows in &self.options.flows {
                let runs = &mut self.runs;
                let rows = pinned(cpu, || veth::udp_rate(&instances, "udp64", *flows, effort, runs))?;
                self.done(
                    rows.into_iter().filter(|r| self.options.wants("udp") || r.id.starts_with("afxdp")),
                );
            }
        }
        if more {
            self.progress.part(self.effort);
        }
        if self.options.wants("delay") {
            let rows = pinned(cpu, || veth::delay(&instances, 2, effort, &mut self.runs))?;
            self.done(rows);
        }
        self.streams(&instances)
    }

    fn streams(&mut self, instances: &[&Instance]) -> Result<()> {
        let wanted = self.wants_any(&["tcp", "udp1400"]);
        if !wanted || !testkit::programs_or_skip("the rows of streams", &["iperf3"]) {
            return Ok(());
        }
        let tso = self.instances(&[Side::OvsTso], 2)?;
        let no_afxdp = |i: &&Instance| !matches!(i.side, Side::SluiceAfxdp | Side::OvsAfxdp);
        let mut sides: Vec<&Instance> = instances.iter().copied().filter(no_afxdp).collect();
        sides.extend(&tso);
        if self.options.wants("tcp") {
            self.done([streams::tcp(&sides, "tcp", self.effort)]);
        }
        if self.options.wants("udp1400") {
            self.done([streams::udp(&sides, self.effort)]);
        }
        Ok(())
    }

    fn bonds(&mut self) -> Result<()> {
        if !self.options.wants("bond") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let sides = [Side::Sluice, Side::Before, Side::Ovs];
        let mut instances = self.joined_instances(&sides, 2, Some(Joint::Bond))?;
        instances.extend(self.joined_instances(&sides, 2, Some(Joint::Port))?);
        let instances: Vec<&Instance> = instances.iter().collect();
        let (effort, runs) = (self.effort, &mut self.runs);
        let rows = pinned(self.cpus.generator, || veth::joined(&instances, effort, runs))?;
        self.done(rows);
        Ok(())
    }

    fn ablation_hosts(&mut self) -> Result<()> {
        if !self.options.wants("ablation") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let sluiced = self.sluiced.clone();
        let build = self.build(&sluiced, 2, None);
        let (effort, runs) = (self.effort, &mut self.runs);
        let rows = pinned(self.cpus.generator, || ablation::veth(&build, effort, runs))?;
        self.done(rows);
        let offload = ablation::offload(&build, self.effort)?;
        self.done(offload);
        Ok(())
    }

    fn restarts(&mut self) -> Result<()> {
        if !self.options.wants("restart") {
            return Ok(());
        }
        self.progress.part(self.effort);
        let build = |side: Side| Build { managed: side.is_ours(), ..self.build(self.program(side), 2, None) };
        let instances = self.built_instances(&[Side::Sluice, Side::Before, Side::Ovs], build)?;
        let (effort, quick, cpus, runs) = (self.effort, self.options.quick, self.cpus, &mut self.runs);
        let rows = pinned(cpus.generator, || restart::rows(&instances, cpus.switch, effort, quick, runs))?;
        self.done(rows);
        Ok(())
    }

    fn many_ports(&mut self) -> Result<()> {
        if !self.wants_any(&["delay", "idle"]) {
            return Ok(());
        }
        self.progress.part(self.effort);
        let instances = self.instances(&[Side::Sluice, Side::Before, Side::Ovs, Side::Bridge], MANY_PORTS)?;
        let instances: Vec<&Instance> = instances.iter().collect();
        if self.options.wants("delay") {
            let (effort, runs) = (self.effort, &mut self.runs);
            let rows = pinned(self.cpus.generator, || veth::delay(&instances, MANY_PORTS, effort, runs))?;
            self.done(rows);
        }
        if self.options.wants("idle") {
            self.done([idle::idle(&instances, MANY_PORTS, self.effort)]);
        }
        Ok(())
    }
}
