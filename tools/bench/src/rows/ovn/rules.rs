//! Rules as `ovn-controller` makes them on one chassis of a large deployment: its tables and matches, two local ports of
//! thousands, tunnels to the other chassis.
//!
//! The measured packets go from the first local port to a logical port that moves between two others.

use std::fmt::Write as _;

/// Sizes of a deployment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Other chassis, a tunnel each.
    pub(crate) chassis: usize,
    /// Logical ports.
    pub(crate) ports: usize,
    /// Rules.
    pub(crate) rules: usize,
    /// Rules with conjunctions, among them.
    pub(crate) conjunctive: usize,
}

impl Size {
    /// The deployment of the row.
    pub(crate) const LARGE: Size = Size { chassis: 200, ports: 5000, rules: 500_000, conjunctive: 60_000 };
    /// One that shows that everything works.
    pub(crate) const SMALL: Size = Size { chassis: 5, ports: 100, rules: 4000, conjunctive: 600 };
}

/// Ports of one logical switch.
const SWITCH_PORTS: usize = 10;
/// Rules of one conjunction's three clauses, about.
const CONJUNCTION_RULES: usize = 200;
/// Conjunctions of one port, at most.
const MEMBERSHIPS: usize = 20;
/// Routes of one logical router.
const ROUTES: usize = 100;
/// OpenFlow number of the first local port; further local ports follow.
pub(crate) const SENDER: usize = 1;
/// OpenFlow numbers of the two ports between which the logical port moves.
pub(crate) const PLACES: [usize; 2] = [2, 3];
/// OpenFlow number of the first tunnel.
pub(crate) const TUNNELS: usize = 1000;
/// Logical numbers of the sender and of the port that moves, both of the first logical switch.
const SENDER_LOGICAL: usize = 1;
const MOVING: usize = 2;

/// Ethernet address of a logical port.
pub(crate) fn mac(port: usize) -> String {
    format!("0a:00:00:{:02x}:{:02x}:{:02x}", port >> 16 & 255, port >> 8 & 255, port & 255)
}

/// IPv4 address of a logical port.
pub(crate) fn ip(port: usize) -> String {
    format!("10.{}.{}.{}", port >> 16 & 255, port >> 8 & 255, port & 255)
}

/// Address of the sender, and of the port that moves.
pub(crate) fn path() -> [(String, String); 2] {
    [SENDER_LOGICAL, MOVING].map(|port| (mac(port), ip(port)))
}

/// The logical switch of a port.
fn switch(port: usize) -> usize {
    1 + port / SWITCH_PORTS
}

/// Lines for `ovs-ofctl add-flows`.
#[derive(Default)]
struct Lines {
    text: String,
    count: usize,
}

impl Lines {
    fn add(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = self.text.write_fmt(line);
        self.text.push('\n');
        self.count += 1;
    }
}

/// Rules of a logical port, which do not depend on its place.
fn of_port(lines: &mut Lines, port: usize) {
    let (mac, ip, dp) = (mac(port), ip(port), switch(port));
    lines.add(format_args!(
        "table=8,priority=50,reg14={port},metadata={dp},dl_src={mac},actions=resubmit(,9)"
    ));
    for (kind, more) in [("ip", format!("nw_src={ip}")), ("arp", format!("arp_spa={ip}"))] {
        lines.add(format_args!(
            "table=9,priority=90,{kind},reg14={port},metadata={dp},dl_src={mac},{more},actions=resubmit(,15)"
        ));
    }
    lines.add(format_args!(
        "table=20,priority=50,arp,metadata={dp},arp_tpa={ip},arp_op=1,actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],\
         mod_dl_src:{mac},load:2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
         load:0x{:x}->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
         move:NXM_NX_REG14[]->NXM_NX_REG15[],load:1->NXM_NX_REG10[0],resubmit(,37)",
        0x0a00_0000_0000_u64 | port as u64
    ));
    lines.add(format_args!(
        "table=25,priority=50,metadata={dp},dl_dst={mac},actions=load:{port}->NXM_NX_REG15[],resubmit(,37)"
    ));
}

/// Rules of the place of a local port.
fn of_place(lines: &mut Lines, port: usize, place: usize) {
    let dp = switch(port);
    lines.add(format_args!(
        "table=0,priority=100,in_port={place},actions=load:{dp}->OXM_OF_METADATA[],load:{port}->NXM_NX_REG14[],resubmit(,8)"
    ));
    lines.add(format_args!("table=37,priority=100,reg15={port},metadata={dp},actions=resubmit(,65)"));
    lines.add(format_args!("table=65,priority=100,reg15={port},metadata={dp},actions=output:{place}"));
}

/// The rule with a port's memberships in conjunctions.
fn memberships(lines: &mut Lines, size: Size, port: usize) {
    let numbers = (0..size.conjunctive / CONJUNCTION_RULES).filter(|n| n % 16 == port % 16).take(MEMBERSHIPS);
    let actions: Vec<String> = numbers.map(|n| format!("conjunction({},1/3)", n + 2)).collect();
    lines.add(format_args!(
        "table=15,priority=2001,ip,reg14={port},metadata={},actions={}",
        switch(port),
        actions.join(",")
    ));
}

/// Rules that carry the measured packets, with the moving port at the first place.
pub(crate) fn base() -> String {
    let mut lines = Lines::default();
    for table in [8, 9, 15, 20, 25] {
        let next = match table {
            8 => 9,
            9 => 15,
            15 => 20,
            _ => 25,
        };
        // Anything without a rule of its own is dropped in the last table.
        let actions = if table == 25 { "drop".to_string() } else { format!("resubmit(,{next})") };
        lines.add(format_args!("table={table},priority=0,actions={actions}"));
    }
    for (port, place) in [(SENDER_LOGICAL, SENDER), (MOVING, PLACES[0])] {
        of_port(&mut lines, port);
        of_place(&mut lines, port, place);
    }
    lines.text
}

/// All other rules of a deployment.
pub(crate) fn rest(size: Size) -> String {
    let mut lines = Lines::default();
    for n in 0..size.chassis {
        lines.add(format_args!(
            "table=0,priority=100,in_port={},actions=move:NXM_NX_TUN_ID[0..23]->OXM_OF_METADATA[0..23],resubmit(,38)",
            TUNNELS + n
        ));
    }
    for port in MOVING + 1..=size.ports {
        of_port(&mut lines, port);
        lines.add(format_args!(
            "table=37,priority=100,reg15={port},metadata={0},actions=load:{0}->NXM_NX_TUN_ID[0..23],\
             move:NXM_NX_REG14[0..14]->NXM_NX_REG9[0..14],output:{1}",
            switch(port),
            TUNNELS + port % size.chassis
        ));
    }
    conjunctions(&mut lines, size);
    let routers = size.ports / SWITCH_PORTS;
    for router in 1..=routers {
        for n in 0..ROUTES.min(size.rules / 20 / routers) {
            lines.add(format_args!(
                "table=30,priority={},ip,metadata={},nw_dst=10.{}.{n}.0/{},actions=dec_ttl(),load:{}->NXM_NX_XXREG0[96..127],\
                 load:{n}->NXM_NX_REG15[],resubmit(,31)",
                50 + n % 9,
                10_000 + router,
                router % 200,
                24 + n % 9,
                n + 1
            ));
            lines.add(format_args!(
                "table=33,priority=120,tcp,metadata={},nw_dst=10.96.{n}.{},tp_dst={},actions=load:{n}->NXM_NX_REG5[],resubmit(,34)",
                10_000 + router,
                router % 250,
                80 + n
            ));
        }
    }
    // Neighbours of routers fill it up, as they do in deployments.
    let fixed = lines.count + base().lines().count();
    for n in 0..size.rules.saturating_sub(fixed) {
        lines.add(format_args!(
            "table=31,priority=100,reg0=0x0a{:06x},reg15={},metadata={},actions=mod_dl_dst:{},resubmit(,32)",
            n / routers,
            n % 100,
            10_000 + 1 + n % routers,
            mac(n)
        ));
    }
    lines.text
}

/// Access lists of three clauses: ports, addresses, services.
fn conjunctions(lines: &mut Lines, size: Size) {
    let mut left = size.conjunctive;
    // Ports whose remainder has no conjunction are no members.
    for port in (1..=size.ports).filter(|port| port % 16 < size.conjunctive / CONJUNCTION_RULES) {
        memberships(lines, size, port);
        left -= 1;
    }
    let conjunctions = size.conjunctive / CONJUNCTION_RULES;
    for number in 0..conjunctions {
        lines.add(format_args!("table=15,priority=2001,conj_id={},ip,actions=resubmit(,20)", number + 2));
    }
    let mut n = 0;
    while left > 0 {
        let number = n % conjunctions;
        let each = n / conjunctions;
        let clause = if each.is_multiple_of(2) {
            format!("ip,nw_src=10.{}.{}.{}", number % 200, each / 200, each % 200)
        } else {
            format!("tcp,tp_dst={}", 1000 + each)
        };
        lines.add(format_args!(
            "table=15,priority=2001,{clause},metadata={},actions=conjunction({},{}/3)",
            1 + number,
            number + 2,
            2 + each % 2
        ));
        (left, n) = (left - 1, n + 1);
    }
}

/// Flow-mods that move the port between its places, as `ovn-controller` sends them for a changed binding: each rule that
/// depends on the place is deleted and added, its own rules and memberships are made anew.
pub(crate) fn moved(size: Size, from: usize, to: usize) -> Vec<(bool, String)> {
    let mut old = Lines::default();
    let mut new = Lines::default();
    for (lines, place) in [(&mut old, PLACES[from]), (&mut new, PLACES[to])] {
        of_port(lines, MOVING);
        of_place(lines, MOVING, place);
        memberships(lines, size, MOVING);
    }
    let deleted =
        old.text.lines().map(|line| (false, line.split(",actions=").next().unwrap_or(line).to_string()));
    let added = new.text.lines().map(|line| (true, line.to_string()));
    deleted.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_deployment_has_its_size_in_distinct_rules() {
        for size in [Size::SMALL, Size { chassis: 20, ports: 1000, rules: 50_000, conjunctive: 6000 }] {
            let all = base() + &rest(size);
            let matches: BTreeSet<&str> = all.lines().filter_map(|l| l.split(",actions=").next()).collect();
            let mut seen = BTreeSet::new();
            let twice = all.lines().filter_map(|l| l.split(",actions=").next()).find(|m| !seen.insert(*m));
            assert_eq!((all.lines().count(), matches.len()), (size.rules, size.rules), "{twice:?}");
            let clauses = all.lines().filter(|l| l.contains("conjunction(")).count();
            assert_eq!(clauses, size.conjunctive);
        }
    }

    #[test]
    fn a_move_replaces_what_depends_on_the_place() {
        let mods = moved(Size::SMALL, 0, 1);
        let (added, deleted): (Vec<_>, Vec<_>) = mods.iter().partition(|(adds, _)| *adds);
        assert_eq!(added.len(), deleted.len());
        assert!(added.iter().any(|(_, l)| l.ends_with("output:3")));
        assert!(deleted.iter().any(|(_, l)| l.ends_with("in_port=2")));
    }
}
