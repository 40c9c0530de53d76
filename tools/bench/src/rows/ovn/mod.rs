//! Rows of OVN at scale: one chassis of a large deployment gets the rules that `ovn-controller` would send, in bundles over
//! OpenFlow 1.5, while packets pass.
//!
//! Half a million rules come in one bundle. Then a logical port moves between two local ports, again and again: a bundle of
//! some twenty flow-mods, after which the first packet must arrive at the new place.

mod client;
mod rules;

use super::rules::RuleSide;
use super::{Effort, in_turn, values_of};
use crate::daemons;
use crate::lab::resident_bytes;
use crate::report::{Row, Sample, percentile};
use anyhow::{Context, Result, ensure};
use client::{Client, bundle};
pub(crate) use rules::Size;
use rules::{PLACES, SENDER, TUNNELS};
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::{Daemon, Host, Topology, wait_for};

const BRIDGE: &str = "br-int";
const UDP_PORT: u16 = 4000;
/// Interval of the sender's packets, at least.
const INTERVAL: Duration = Duration::from_micros(100);
/// Until packets arrive at a new place, and until ports exist.
const LIMIT: Duration = Duration::from_secs(30);
/// Packets that show that a place has the port.
const SETTLED: u64 = 10;
/// Freed memory returns to the system with a delay.
const SETTLE: Duration = Duration::from_secs(1);

/// Results of one round.
#[derive(Clone, Copy)]
struct Measured {
    /// From the first byte of the bundle to the reply to its commit.
    load_s: f64,
    /// Processor time of the daemon for it.
    load_cpu_s: f64,
    memory_mb: f64,
    /// Longest time without an arrival during the load.
    gap_ms: f64,
    /// From the first byte of a change's bundle to the first packet at the new place.
    change_p50_ms: f64,
    change_p99_ms: f64,
}

/// Arrivals at one place.
#[derive(Default)]
struct Arrivals {
    count: AtomicU64,
    /// Time of the first one since this was 0, in ns since the start.
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    longest_gap_ns: AtomicU64,
}

impl Arrivals {
    fn enter(&self, now_ns: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let _later = self.first_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        let last = self.last_ns.swap(now_ns, Ordering::Relaxed);
        if last > 0 {
            self.longest_gap_ns.fetch_max(now_ns - last, Ordering::Relaxed);
        }
    }
}

/// The measured packets: one sender, a receiver at each place.
struct Traffic {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    places: [Arc<Arrivals>; 2],
    start: Instant,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

impl Traffic {
    fn start(net: &Topology) -> Result<Traffic> {
        let (start, ends) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let mut traffic =
            Traffic { ends, threads: Vec::new(), places: std::array::from_fn(|_| Arc::default()), start };
        for (host, arrivals) in net.hosts[1..].iter().zip(traffic.places.clone()) {
            let socket = host.netns.enter(|| UdpSocket::bind(("0.0.0.0", UDP_PORT)))??;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            let ends = Arc::clone(&traffic.ends);
            traffic.threads.push(std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while !ends.load(Ordering::Relaxed) {
                    if socket.recv(&mut buffer).is_ok() {
                        arrivals.enter(start.elapsed().as_nanos() as u64);
                    }
                }
            }));
        }
        let [_, (_, to)] = rules::path();
        let socket = net.hosts[0].netns.enter(|| UdpSocket::bind(("0.0.0.0", 0)))??;
        socket.connect((to.as_str(), UDP_PORT))?;
        let ends = Arc::clone(&traffic.ends);
        traffic.threads.push(std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let _refused = socket.send(&[0; 32]);
                std::thread::sleep(INTERVAL);
            }
        }));
        Ok(traffic)
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Waits until that many more packets arrived at a place.
    fn settle(&self, place: usize) -> Result<()> {
        let count = &self.places[place].count;
        let before = count.load(Ordering::Relaxed);
        wait_for(LIMIT, "packets at their place", || count.load(Ordering::Relaxed) >= before + SETTLED)
    }

    /// Time of a change that moves the port to a place.
    fn change(&self, client: &mut Client, bytes: &[u8], place: usize) -> Result<u64> {
        let [old, new] = [&self.places[1 - place], &self.places[place]];
        new.first_ns.store(0, Ordering::Relaxed);
        let begin = self.now_ns();
        client.commit(bytes)?;
        wait_for(LIMIT, "a packet at the new place", || new.first_ns.load(Ordering::Relaxed) > 0)?;
        let took = new.first_ns.load(Ordering::Relaxed).checked_sub(begin);
        let took = took.context("a packet came to the new place before the change")?;
        self.settle(place)?;
        // None comes to the old one then.
        let before = old.count.load(Ordering::Relaxed);
        self.settle(place)?;
        ensure!(old.count.load(Ordering::Relaxed) == before, "packets come to the old place");
        Ok(took)
    }
}

/// A switch with its hosts and tunnels.
fn start(side: &RuleSide, net: &Topology, size: Size) -> Result<Vec<Daemon>> {
    let all = side.start(&net.switch)?;
    let mut line = format!("add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev fail-mode=secure");
    for (host, number) in net.hosts.iter().zip([SENDER, PLACES[0], PLACES[1]]) {
        let port = &host.port;
        let _ = write!(line, " -- add-port {BRIDGE} {port} -- set Interface {port} ofport_request={number}");
    }
    for n in 0..size.chassis {
        let _ = write!(
            line,
            " -- add-port {BRIDGE} ovn{n} -- set Interface ovn{n} type=geneve ofport_request={} options:key=flow \
             options:remote_ip=172.16.{}.{}",
            TUNNELS + n,
            n / 250,
            1 + n % 250
        );
    }
    let daemon = all.first().context("a side has a daemon")?;
    daemon.ovs("ovs-vsctl", &line.split_whitespace().collect::<Vec<_>>())?;
    Ok(all)
}

/// Gives the hosts the addresses of their logical ports, and no reason for ARP.
fn configure(net: &Topology) -> Result<()> {
    let [sender, receiver] = rules::path();
    let set = |host: &Host, (mac, ip): &(String, String), peer: &(String, String)| -> Result<()> {
        let (netns, dev) = (&host.netns, &host.dev);
        netns.ip(&format!("addr flush dev {dev}"))?;
        netns.ip(&format!("link set dev {dev} address {mac}"))?;
        netns.add_addr(dev, &format!("{ip}/8"))?;
        netns.ip(&format!("neigh replace {} lladdr {} dev {dev}", peer.1, peer.0))?;
        // Datagrams have complete checksums for every switch.
        netns.set_offloads(dev, false)
    };
    set(&net.hosts[0], &sender, &receiver)?;
    set(&net.hosts[1], &receiver, &sender)?;
    set(&net.hosts[2], &receiver, &sender)
}

/// The bundles of a deployment.
struct Bundles {
    base: Vec<u8>,
    rest: Vec<u8>,
    /// To the second place, and back.
    moves: [Vec<u8>; 2],
}

impl Bundles {
    fn of(size: Size) -> Result<Bundles> {
        let added = |text: String| bundle(text.lines().map(|line| (true, line.to_string())));
        Ok(Bundles {
            base: added(rules::base())?,
            rest: added(rules::rest(size))?,
            moves: [bundle(rules::moved(size, 0, 1))?, bundle(rules::moved(size, 1, 0))?],
        })
    }
}

fn round(side: &RuleSide, size: Size, bundles: &Bundles, changes: usize) -> Result<Measured> {
    let net = Topology::new(3)?;
    configure(&net)?;
    let daemons = start(side, &net, size)?;
    let daemon = &daemons[0];
    let socket = daemon.rundir().join(&format!("{BRIDGE}.mgmt"));
    wait_for(LIMIT, "the bridge's socket", || socket.exists())?;
    let mut client = Client::connect(&socket)?;
    client.commit(&bundles.base)?;
    let traffic = Traffic::start(&net)?;
    traffic.settle(0)?;
    std::thread::sleep(SETTLE);
    let (empty, spent) = (resident_bytes(daemon.pid())?, daemons::cpu_ns(daemon.pid())?);
    traffic.places[0].longest_gap_ns.store(0, Ordering::Relaxed);
    let begin = traffic.now_ns();
    client.commit(&bundles.rest)?;
    let load_s = (traffic.now_ns() - begin) as f64 / 1e9;
    // A gap that has not ended counts too.
    traffic.settle(0)?;
    let gap_ms = traffic.places[0].longest_gap_ns.load(Ordering::Relaxed) as f64 / 1e6;
    let load_cpu_s = (daemons::cpu_ns(daemon.pid())? - spent) as f64 / 1e9;
    let aggregate = daemon.ovs("ovs-ofctl", &["-OOpenFlow15", "dump-aggregate", BRIDGE])?.stdout;
    ensure!(aggregate.contains(&format!("flow_count={}", size.rules)), "{aggregate}");
    std::thread::sleep(SETTLE);
    let memory_mb = resident_bytes(daemon.pid())?.saturating_sub(empty) as f64 / 1e6;
    let mut times = Vec::new();
    for n in 0..changes {
        times.push(traffic.change(&mut client, &bundles.moves[n % 2], 1 - n % 2)?);
    }
    let ms = |times: &mut [u64], share| percentile(times, share).map_or(0.0, |ns| ns as f64 / 1e6);
    let (change_p50_ms, change_p99_ms) = (ms(&mut times, 0.5), ms(&mut times, 0.99));
    Ok(Measured { load_s, load_cpu_s, memory_mb, gap_ms, change_p50_ms, change_p99_ms })
}

/// The rows of a deployment.
pub(crate) fn rows(mut sides: Vec<RuleSide>, size: Size, changes: usize, effort: Effort) -> Result<Vec<Row>> {
    let bundles = Bundles::of(size)?;
    let mut seen: Vec<Vec<Option<Measured>>> = sides.iter().map(|_| Vec::new()).collect();
    let (number, mut asked) = (sides.len(), 0);
    let load = in_turn(effort.rounds, &mut sides, RuleSide::name, |side| {
        let into = &mut seen[asked % number];
        asked += 1;
        let round = round(side, size, &bundles, changes);
        into.push(round.as_ref().ok().copied());
        Ok(Sample { value: Some(round?.load_s), ..Sample::default() })
    });
    let of = |value: fn(&Measured) -> f64| values_of(&load, &seen, value);
    let rest = [
        ("load-cpu", "processor time of that", "s", of(|s| s.load_cpu_s)),
        ("load-gap", "longest time without a packet meanwhile", "ms", of(|s| s.gap_ms)),
        ("memory", "resident memory", "MB", of(|s| s.memory_mb)),
        ("change-p50", "one port's change to the first right packet, median", "ms", of(|s| s.change_p50_ms)),
        ("change-p99", "one port's change to the first right packet, p99", "ms", of(|s| s.change_p99_ms)),
    ];
    let row = |id: &str, what: &str, unit, sides| Row {
        id: format!("ovn-{id}"),
        title: format!("OVN, {} rules, {} ports: {what}", size.rules, size.ports),
        unit,
        sides,
    };
    let rest: Vec<Row> = rest.into_iter().map(|(id, what, unit, sides)| row(id, what, unit, sides)).collect();
    let mut rows = vec![row("load", "one bundle of all rules", "s", load)];
    rows.extend(rest);
    Ok(rows)
}
