//! Rows of tracked connections: new ones; and beside the same traffic without them, a TCP stream through a translation, and
//! established packets while others begin connections.

use super::streams::{stream, tcp_sample};
use super::{Effort, in_turn};
use crate::lab::{BRIDGE, Lab};
use crate::report::{Row, Sample, SideSamples};
use crate::sides::Instance;
use crate::tunnels::Tunnel;
use crate::works::{self, OUT, Source, Work};
use anyhow::{Context, Result, bail, ensure};
use netdev::Port;
use packet::{BATCH_MAX_PACKETS, PacketBatch, PacketPool, checksum::checksum};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{Iperf3Options, Netns, TempDir, wait_for};

/// Suffix of a side that does not track.
pub(crate) const UNTRACKED: &str = ", untracked";
/// Suffix of a side without new connections.
pub(crate) const ALONE: &str = ", no new connections";

/// Zone of the stream.
const STREAM_ZONE: u16 = 21;
/// The address that the first host's packets get; in the hosts' network, so the second host answers it directly.
const TRANSLATED: Ipv4Addr = Ipv4Addr::new(10, 0, 200, 1);

/// Zone of new connections.
const NEW_ZONE: u16 = 22;
/// OpenFlow numbers of the port on which they arrive, and of the port that drops their packets.
const NEW: u32 = 50;
const NEW_OUT: u32 = 101;
/// New connections a second.
const NEW_RATE: u32 = 100_000;
/// Minimum share that must exist afterwards of those that were not lost at a full ring.
const NEW_SHARE: f64 = 0.95;
/// Maximum time until they are counted.
const COUNT_LIMIT: Duration = Duration::from_secs(60);
const NEW_FRAME_BYTES: usize = 60;

/// Connections that begin together, one with each packet.
const TOGETHER: u32 = 100_000;
/// Time for them.
const TOGETHER_LIMIT: Duration = Duration::from_secs(30);

/// Rules of a stream between two ports: as a NAT gateway has them, or the same outputs without tracking.
fn stream_rules([a, b]: [u32; 2], tracked: bool) -> String {
    let around = "priority=0,actions=NORMAL\n";
    if !tracked {
        return format!("{around}in_port={a},ip,actions=output:{b}\nin_port={b},ip,actions=output:{a}\n");
    }
    let z = STREAM_ZONE;
    format!(
        "{around}ip,actions=ct(zone={z},nat,table=1)\n\
         table=1,in_port={a},ip,ct_state=+trk+new,actions=ct(commit,zone={z},nat(src={TRANSLATED})),output:{b}\n\
         table=1,in_port={a},ip,ct_state=+trk+est,actions=output:{b}\n\
         table=1,in_port={b},ip,ct_state=+trk+est,actions=output:{a}\n"
    )
}

/// A stream on each instance, tracked and translated, and without tracking. Each turn checks the tracker's list.
pub(crate) fn tcp(instances: &[Instance], effort: Effort) -> Row {
    let options = Iperf3Options { time_s: (effort.time.as_secs() as u32).max(1), ..Iperf3Options::default() };
    let mut turns: Vec<(&Instance, bool)> = instances.iter().flat_map(|i| [(i, true), (i, false)]).collect();
    let name = |(i, tracked): &(&Instance, bool)| {
        format!("{}{}", i.side.name(), if *tracked { "" } else { UNTRACKED })
    };
    let sides = in_turn(effort.rounds, &mut turns, name, |(instance, tracked)| {
        let [a, b] = &instance.net.hosts[..] else { bail!("a line has two ends") };
        let ports = [instance.number(&a.port)?, instance.number(&b.port)?];
        instance.replace_rules(&stream_rules(ports, *tracked))?;
        b.netns.ip(&format!("neigh replace {TRANSLATED} lladdr {} dev {}", a.mac, b.dev))?;
        let zone = format!("zone={STREAM_ZONE}");
        instance.appctl(&["dpctl/flush-conntrack", &zone])?;
        let report = stream([a, b], instance.side, &options)?.context("no stream")?;
        let listed = instance.appctl(&["dpctl/dump-conntrack", &zone])?;
        let translated = |line: &&str| {
            line.contains(&format!("orig=(src={},dst={}", a.ipv4, b.ipv4))
                && line.contains(&format!("reply=(src={},dst={TRANSLATED}", b.ipv4))
        };
        let found = listed.lines().filter(|l| l.starts_with("tcp,")).filter(translated).count();
        // iperf3 has a connection for control, and one for data.
        ensure!(found == if *tracked { 2 } else { 0 }, "{found} translated connections: {listed}");
        Ok(tcp_sample(&report))
    });
    let title =
        "TCP between namespaces, one stream, offloads on, tracked with its source translated, received";
    Row { id: "ct-tcp".into(), title: title.into(), unit: "Gb/s", sides }
}

/// Established connections of `established` as they are, and new ones of a port beside them.
pub(crate) fn beside_new(mut established: Work) -> Work {
    let z = NEW_ZONE;
    established.rules.extend([
        format!("in_port={NEW},udp,actions=ct(zone={z},nat,table=2)"),
        format!(
            "table=2,udp,ct_state=+trk+new,actions=ct(commit,zone={z},nat(src=192.0.2.1-192.0.2.20)),output:{NEW_OUT}"
        ),
    ]);
    established
}

/// Generator of new connections: each frame begins one.
struct Beginner {
    far: Netns,
    device: String,
    cpu: usize,
    /// Number of the next connection.
    next: u32,
}

impl Beginner {
    /// The first packet of connection `n`: many sources and destinations, so that translated ports last.
    fn frame(n: u32) -> [u8; NEW_FRAME_BYTES] {
        let mut f = [0; NEW_FRAME_BYTES];
        f[..14].copy_from_slice(&[2, 0xbe, 0, 0, 0, 2, 2, 0xbe, 0, 0, 0, 3, 8, 0]);
        f[14..18].copy_from_slice(&[0x45, 0, 0, (NEW_FRAME_BYTES - 14) as u8]);
        f[20..24].copy_from_slice(&[0x40, 0, 64, 17]);
        f[26..30].copy_from_slice(&(0x0a40_0000 | n >> 14).to_be_bytes());
        f[30..34].copy_from_slice(&(0x1400_0000 | (n % 16_381)).to_be_bytes());
        let sum = checksum(&f[14..34]);
        f[24..26].copy_from_slice(&sum.to_be_bytes());
        f[34..36].copy_from_slice(&(1024 + (n & 0x3fff) as u16).to_be_bytes());
        f[36..40].copy_from_slice(&[0, 53, 0, (NEW_FRAME_BYTES - 34) as u8]);
        f
    }

    /// Sends at [`NEW_RATE`] until `stop`, but some in any case; returns the number sent, and the seconds it took.
    fn run(&mut self, stop: &AtomicBool) -> Result<(u32, f64)> {
        let (cpu, device, next) = (self.cpu, self.device.clone(), &mut self.next);
        let work = move || -> Result<(u32, f64)> {
            sys::thread::pin_thread(cpu)?;
            let mut tx = Port::open_system(&device, &crate::traffic::sender_options())?.tx()?;
            let (mut pool, mut batch) = (PacketPool::new(), PacketBatch::new());
            let (mut sent, start) = (0_u32, Instant::now());
            while sent == 0 || !stop.load(Ordering::Relaxed) {
                let due = (start.elapsed().as_secs_f64() * f64::from(NEW_RATE)) as u32;
                let burst = due.saturating_sub(sent).min(BATCH_MAX_PACKETS as u32);
                if burst < BATCH_MAX_PACKETS as u32 {
                    std::thread::sleep(Duration::from_micros(100));
                    continue;
                }
                for _ in 0..burst {
                    let mut packet = pool.alloc(NEW_FRAME_BYTES);
                    packet.set_frame(&Beginner::frame(*next));
                    *next = next.wrapping_add(1);
                    batch.push(packet);
                }
                sent += tx.send(&mut batch, &mut pool).sent_packets as u32;
            }
            Ok((sent, start.elapsed().as_secs_f64()))
        };
        self.far.enter(work)?
    }
}

/// Counts of one turn.
struct Turn {
    /// Established packets a second.
    mpps: f64,
    note: Option<String>,
}

fn alone(lab: &mut Lab, effort: Effort) -> Result<Turn> {
    std::thread::sleep(effort.warm_up);
    let interval = lab.count(effort.time)?;
    Ok(Turn { mpps: interval.stats.received as f64 / interval.seconds / 1e6, note: None })
}

/// The same while new connections arrive. All that were received must exist afterwards, translated. On a loaded machine the
/// generator may be late: the note tells the rate.
fn with_new(lab: &mut Lab, beginner: &mut Beginner, effort: Effort) -> Result<Turn> {
    let zone = format!("zone={NEW_ZONE}");
    lab.appctl(&["dpctl/flush-conntrack", &zone])?;
    let (stop, before) = (AtomicBool::new(false), lab.full_rings()?);
    let (interval, sent) = std::thread::scope(|scope| {
        let beginning = scope.spawn(|| beginner.run(&stop));
        std::thread::sleep(effort.warm_up);
        let interval = lab.count(effort.time);
        stop.store(true, Ordering::Relaxed);
        (interval, beginning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (interval, (sent, seconds)) = (interval?, sent?);
    let (mut created, mut lost) = (0_u64, 0);
    let all = wait_for(COUNT_LIMIT, "all new connections", || {
        let statistics = lab.appctl(&["dpctl/ct-stats-show", &zone]).unwrap_or_default();
        let total = statistics.lines().find_map(|line| line.trim().strip_prefix("Total: "));
        created = total.and_then(|total| total.parse().ok()).unwrap_or(0);
        lost = lab.full_rings().unwrap_or(before).saturating_sub(before);
        created as f64 >= (f64::from(sent) - lost as f64) * NEW_SHARE
    });
    ensure!(all.is_ok(), "{created} connections exist of {sent} new ones, {lost} of them lost at full rings");
    let listed = lab.appctl(&["dpctl/dump-conntrack", &zone])?;
    // The list may be cut off within a line.
    let whole = listed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let other = whole.lines().find(|line| !line.contains("dst=192.0.2."));
    ensure!(!whole.is_empty() && other.is_none(), "a connection is not translated: {other:?}");
    let established = interval.stats.received as f64 / interval.seconds - created as f64 / seconds;
    let lost = if lost == 0 { String::new() } else { format!(", {lost} lost at full receive rings") };
    let note = format!("{:.0} new a second{lost}", created as f64 / seconds);
    Ok(Turn { mpps: established / 1e6, note: Some(note) })
}

/// The rate of established packets of each lab, with and without new connections. The labs serve nothing else.
pub(crate) fn load(labs: &mut [Lab], work: &Work, cpu: usize, effort: Effort) -> Result<Row> {
    let mut beginners = Vec::new();
    for lab in labs.iter_mut() {
        lab.awake(|lab| {
            let (far, device) = lab.add_veth(NEW)?;
            lab.add_port(BRIDGE, "newout", NEW_OUT, None::<&Source>)?;
            lab.install(work)?;
            // A source that is added has no bridge at first.
            beginners.push((Beginner { far, device, cpu, next: 0 }, lab.settled_drops_inside()?));
            Ok(())
        })?;
    }
    let mut turns = Vec::new();
    for at in 0..labs.len() {
        turns.extend([(at, true), (at, false)]);
    }
    let names: Vec<String> = labs.iter().map(|lab| lab.name.clone()).collect();
    let name = |(at, new): &(usize, bool)| format!("{}{}", names[*at], if *new { "" } else { ALONE });
    let mut sides: Vec<SideSamples> = in_turn(effort.rounds, &mut turns, name, |(at, new)| {
        let (beginner, _) = &mut beginners[*at];
        let turn = labs[*at].awake(|lab| match new {
            true => with_new(lab, beginner, effort),
            false => alone(lab, effort),
        })?;
        Ok(Sample { value: Some(turn.mpps), note: turn.note, ..Sample::default() })
    });
    for (at, (lab, (_, before))) in labs.iter_mut().zip(&beginners).enumerate() {
        let dropped = lab.awake(|lab| lab.settled_drops_inside()).map(|n| n.saturating_sub(*before));
        let dropped = dropped.map(|n| (n > 0).then(|| format!("{n} packets dropped")));
        if let Some(last) = sides[2 * at].samples.last_mut() {
            last.fault = last.fault.take().or(dropped.unwrap_or_else(|e| Some(format!("{e:#}"))));
        }
    }
    let title = format!(
        "pcap → null, 64-byte UDP, {}, while {NEW_RATE} new ones a second arrive on another port, source translated",
        work.title
    );
    Ok(Row { id: "ct-beside-new".into(), title, unit: "Mpps", sides })
}

/// Tracked connections of a daemon.
fn connections(lab: &Lab) -> Result<u32> {
    lab.ask("dpctl/ct-get-nconns")?.trim().parse().context("dpctl/ct-get-nconns")
}

/// Waits for that number of connections at least; returns their number and the time of it.
fn reach(lab: &Lab, least: u32) -> Result<(u32, Instant)> {
    let mut now = (0, Instant::now());
    let waited = testkit::wait_for(TOGETHER_LIMIT, "new connections", || {
        now = (connections(lab).unwrap_or(0), Instant::now());
        now.0 >= least
    });
    waited.with_context(|| format!("{} of {least}", now.0)).map(|()| now)
}

/// Ends all connections, while packets are still on their way.
fn end_all(lab: &Lab) -> Result<()> {
    lab.replace_rules(BRIDGE, &["actions=drop".to_string()])?;
    flush(lab)
}

/// Ends all connections of a work that has ended.
pub(crate) fn end_idle(lab: &mut Lab) -> Result<()> {
    lab.remove_sources()?;
    flush(lab)
}

fn flush(lab: &Lab) -> Result<()> {
    testkit::wait_for(TOGETHER_LIMIT, "the end of all connections", || {
        lab.appctl(&["dpctl/flush-conntrack"]).is_ok() && connections(lab).is_ok_and(|n| n == 0)
    })
}

/// Lets all flows of the capture begin connections in zones one after the other; returns the millions a second, counted between
/// a tenth and nine tenths of each zone.
fn begin_zones(lab: &Lab, zone: &mut u16, effort: Effort) -> Result<f64> {
    let (mut begun, mut seconds, start) = (0, 0.0, Instant::now());
    while begun == 0 || start.elapsed() < effort.time {
        *zone = *zone % 60_000 + 1;
        let track = format!("udp,actions=ct(commit,zone={zone},nat(src=192.0.2.1-192.0.2.20)),output:{OUT}");
        lab.replace_rules(BRIDGE, &[track])?;
        let (first, last) = (reach(lab, TOGETHER / 10)?, reach(lab, TOGETHER / 10 * 9)?);
        begun += last.0 - first.0;
        seconds += (last.1 - first.1).as_secs_f64();
        if *zone == 1 {
            reach(lab, TOGETHER)?;
            let listed = lab.appctl(&["dpctl/dump-conntrack"])?;
            let translated = listed.lines().filter(|line| line.contains(",dst=192.0.2.")).count();
            ensure!(translated == TOGETHER as usize, "{translated} of {TOGETHER} are translated");
        }
        end_all(lab)?;
    }
    ensure!(seconds > 0.0, "{begun} connections began between two readings");
    Ok(f64::from(begun) / seconds / 1e6)
}

/// New connections a second, each translated.
pub(crate) fn begin(labs: &mut [Lab], folder: &TempDir, effort: Effort) -> Result<Row> {
    let frames = (0..TOGETHER).map(Beginner::frame).collect();
    let file = works::write(folder.path(), "ct-new.pcap", frames)?;
    let title = "new connections, source translated to 20 addresses".to_string();
    let work = Work {
        id: "new".into(),
        rules: vec!["actions=drop".into()],
        sources: vec![Source { port: 1, file, tunnel: Tunnel::None }],
        megaflows: 1,
        may_end: 0,
        established: false,
        title: title.clone(),
    };
    for lab in labs.iter_mut() {
        lab.awake(|lab| lab.install(&work).and_then(|()| end_all(lab)))?;
    }
    let mut turns: Vec<(&mut Lab, u16)> = labs.iter_mut().map(|lab| (lab, 0)).collect();
    let sides = in_turn(
        effort.rounds,
        &mut turns,
        |(lab, _)| lab.name.clone(),
        |(lab, zone)| {
            let rate = lab.awake(|lab| begin_zones(lab, zone, effort))?;
            Ok(Sample { value: Some(rate), ..Sample::default() })
        },
    );
    let title = format!("pcap → null, 60-byte UDP, {title}, one with each packet");
    Ok(Row { id: "ct-new".into(), title, unit: "million/s", sides })
}
