//! Bonds with real links: traffic goes on over the other member when one loses its carrier.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::{Daemon, Netns, Topology, if_name, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, ping_all, spec, start, vsctl, wait_until};

/// The address of the partner.
const PARTNER: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);
/// Packets of a flood a second.
const RATE: u64 = 5_000;
/// Packets of a flood where both processors are free, a second.
const FULL_RATE: u64 = 100_000;

/// A switch with a host and a bond of two links to a partner, a bridge of the kernel.
struct Lab {
    net: Topology,
    partner: Netns,
    daemon: Daemon,
    /// The links here, and their other ends.
    links: [(String, String); 2],
}

impl Lab {
    fn new(settings: &str) -> Lab {
        let (net, partner) = (Topology::new(1).unwrap(), Netns::new("partner").unwrap());
        partner.ip("link add name lan type bridge").unwrap();
        partner.ip("link set dev lan up").unwrap();
        partner.add_addr("lan", &format!("{PARTNER}/16")).unwrap();
        let links = [0, 1].map(|_| {
            let (here, there) = (if_name("b"), if_name("c"));
            net.switch
                .ip(&format!("link add name {here} type veth peer name {there} netns {}", partner.name()))
                .unwrap();
            net.switch.up(&here).unwrap();
            partner.ip(&format!("link set dev {there} master lan")).unwrap();
            partner.up(&there).unwrap();
            (here, there)
        });
        let daemon = start(&net.switch);
        let [(a, _), (b, _)] = &links;
        let port = &net.hosts[0].port;
        vsctl(
            &daemon,
            &format!("add-br br0 -- add-port br0 {port} -- add-bond br0 bond0 {a} {b} {settings}"),
        );
        let lab = Lab { net, partner, daemon, links };
        ping_all(&lab.net.hosts[0].netns, PARTNER.into(), 3);
        lab
    }

    /// The number of the active link.
    fn active(&self) -> usize {
        let shown = appctl(&self.daemon, "bond/show bond0");
        let member = shown.split("\nmember ").find(|member| member.contains("  active member\n"));
        let name = member.and_then(|member| member.split(':').next()).unwrap_or_else(|| panic!("{shown}"));
        self.links.iter().position(|(here, _)| here == name).unwrap()
    }
}

#[test]
fn traffic_goes_on_over_the_other_member() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let lab = Lab::new("bond_mode=active-backup");
    let host = &lab.net.hosts[0].netns;
    for _ in 0..2 {
        let active = lab.active();
        let there = &lab.links[active].1;
        lab.partner.ip(&format!("link set dev {there} down")).unwrap();
        wait_for(LIMIT, "another active member", || lab.active() != active).unwrap();
        ping_all(host, PARTNER.into(), 5);
        lab.partner.up(there).unwrap();
        wait_until(&lab.daemon, &format!("Interface {} link_state=up", lab.links[active].0));
        ping_all(host, PARTNER.into(), 5);
    }
    // Both directions, and nothing comes twice: the copy at the other member is dropped.
    ping_all(&lab.partner, lab.net.hosts[0].ipv4.into(), 5);
}

/// Sends numbered packets at `rate` a second, `part` of them before the active link is cut and `part` after; returns the numbers
/// of sent and lost ones, and the longest run of lost ones.
fn flood(lab: &Lab, active: usize, rate: u64, part: u64) -> [u64; 3] {
    let receiver = lab.partner.enter(|| testkit::patient_receiver(7777)).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let host = lab.net.hosts[0].ipv4;
    let sender = lab.net.hosts[0].netns.enter(|| UdpSocket::bind((host, 0))).unwrap().unwrap();
    sender.connect((PARTNER, 7777)).unwrap();
    let (there, partner) = (&lab.links[active].1, &lab.partner);
    // Number of the last packet.
    let last = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        let received = scope.spawn(|| {
            let (mut seen, mut buffer) = (Vec::new(), [0; 64]);
            loop {
                match receiver
                    .recv(&mut buffer)
                    .map(|bytes| buffer[..bytes].try_into().map(u64::from_be_bytes))
                {
                    Ok(Ok(number)) => {
                        seen.resize(seen.len().max(number as usize + 1), 0_u8);
                        seen[number as usize] += 1;
                    }
                    Ok(Err(_)) => {}
                    Err(_) if last.load(Ordering::Acquire) == u64::MAX => {}
                    Err(_) => return seen,
                }
                if seen.len() as u64 == last.load(Ordering::Acquire).saturating_add(1) {
                    return seen;
                }
            }
        });
        let (began, mut sent, mut cut, mut end) = (Instant::now(), 0, None, u64::MAX);
        while sent < end {
            // A sender that was not running catches up slowly: a burst would overflow the receiver.
            let due = (began.elapsed().as_micros() as u64 * rate / 1_000_000).min(sent + 64).min(end);
            while sent < due {
                // Its own queue may be full for a moment.
                if sender.send(&sent.to_be_bytes()).is_ok() {
                    sent += 1;
                }
            }
            if sent >= part && end == u64::MAX {
                let cutter = cut
                    .get_or_insert_with(|| scope.spawn(|| partner.ip(&format!("link set dev {there} down"))));
                if cutter.is_finished() {
                    end = sent + part;
                }
            }
        }
        last.store(sent - 1, Ordering::Release);
        cut.map(|cutter| cutter.join().unwrap().unwrap());
        let mut seen = received.join().unwrap();
        seen.resize(sent as usize, 0);
        assert!(seen.iter().all(|times| *times < 2), "a packet arrived twice");
        let runs = seen.split(|times| *times > 0).map(|run| run.len() as u64);
        [sent, runs.clone().sum(), runs.max().unwrap_or(0)]
    })
}

#[test]
fn a_lost_carrier_loses_what_was_on_the_wire() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let lab = Lab::new("bond_mode=active-backup");
    let [packets, lost, gap] = flood(&lab, lab.active(), RATE, 2 * RATE);
    let gap_us = gap * 1_000_000 / RATE;
    println!("a carrier lost at {RATE} packets/s: {gap_us} us without packets, {lost} of {packets} lost");
    // A busy machine drops some at the receiver.
    assert!(lost - gap <= packets / 4, "{lost} of {packets} packets lost, {gap} in the gap");
    assert!(gap < RATE, "{gap} of {packets} packets in the gap");
    ping_all(&lab.net.hosts[0].netns, PARTNER.into(), 2);
}

#[test]
#[ignore = "needs both processors for a rate; the long check has it"]
fn a_carrier_lost_at_full_rate_loses_what_was_on_the_wire() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let lab = Lab::new("bond_mode=active-backup");
    let mut gaps_us = Vec::new();
    for _ in 0..10 {
        let active = lab.active();
        let [packets, lost, gap] = flood(&lab, active, FULL_RATE, FULL_RATE / 2);
        gaps_us.push(gap * 1_000_000 / FULL_RATE);
        assert!(gap < FULL_RATE / 10, "{gap} of {packets} packets in the gap, {lost} lost");
        wait_for(LIMIT, "another active member", || lab.active() != active).unwrap();
        lab.partner.up(&lab.links[active].1).unwrap();
        wait_until(&lab.daemon, &format!("Interface {} link_state=up", lab.links[active].0));
    }
    gaps_us.sort_unstable();
    println!("carriers lost at {FULL_RATE} packets/s: {gaps_us:?} us without packets");
}

#[test]
fn the_active_member_stays_over_a_restart() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let mut lab = Lab::new("bond_mode=active-backup");
    for _ in 0..2 {
        let other = 1 - lab.active();
        let name = lab.links[other].0.clone();
        appctl(&lab.daemon, &format!("bond/set-active-member bond0 {name}"));
        let mac = vsctl(&lab.daemon, &format!("get Interface {name} mac_in_use"));
        wait_until(&lab.daemon, &format!("Port bond0 bond_active_slave={mac}"));
        let run = lab.daemon.rundir().clone();
        let Lab { net, partner, daemon, links } = lab;
        daemon.stop().unwrap();
        let daemon = spec(&net.switch).rundir(&run).start().unwrap();
        lab = Lab { net, partner, daemon, links };
        wait_for(LIMIT, "the bond", || appctl(&lab.daemon, "bond/list").contains("bond0")).unwrap();
        assert_eq!(lab.active(), other);
        ping_all(&lab.net.hosts[0].netns, PARTNER.into(), 3);
    }
}

#[test]
fn an_slb_bond_carries_both_directions_once() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let lab = Lab::new("bond_mode=balance-slb");
    let host = &lab.net.hosts[0].netns;
    ping_all(host, PARTNER.into(), 5);
    ping_all(&lab.partner, lab.net.hosts[0].ipv4.into(), 5);
    let there = &lab.links[0].1;
    lab.partner.ip(&format!("link set dev {there} down")).unwrap();
    wait_for(LIMIT, "a disabled member", || appctl(&lab.daemon, "bond/show").contains(": disabled")).unwrap();
    ping_all(host, PARTNER.into(), 5);
}
