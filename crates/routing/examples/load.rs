//! Measures a large routing table: memory, and times of load, lookup, change and list.
//!
//! `cargo run --release -p routing --example load [ROUTES]`
#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use routing::text::{Shown, routes};
use routing::{Hops, InterfaceAddress, NextHop, Prefix, Query, Route, RoutePosition, Routes};
use std::net::IpAddr;
use std::time::Instant;

/// The next of a sequence of pseudo-random numbers (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Resident memory, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(500_000);
    let mut state = 88_172_645_463_325_252;
    let gateway = Some(IpAddr::from([10, 0, 0, 1]));
    let hop = NextHop { device: "br0".into(), gateway, is_dead: false };
    // Lengths roughly as in the global table: most are /24.
    let mut route = || {
        let n = next(&mut state);
        let len = if n % 10 < 6 { 24 } else { 12 + (n >> 8) as u8 % 12 };
        let prefix = Prefix::new(IpAddr::from(((n >> 32) as u32).to_be_bytes()), len);
        let prefix = prefix.expect("at most 24 bits");
        Route::new(prefix, Hops::One(hop.clone()))
    };
    let all: Vec<Route> = (0..count).map(|_| route()).collect();
    let mut table = Routes::new();
    table.set_addresses("br0", 1, &[InterfaceAddress::new(IpAddr::from([10, 0, 0, 2]), 24)]);
    let (before_kib, begun) = (resident_kib(), Instant::now());
    for route in &all {
        table.add_cached(route, RoutePosition::Instead).expect("there is room");
    }
    let took = begun.elapsed();
    let kib = resident_kib() - before_kib;
    println!(
        "{} routes: {:.0?}, {} MiB, {} bytes each",
        table.len(),
        took,
        kib / 1024,
        kib * 1024 / table.len() as u64
    );
    let queries: Vec<Query> =
        all.iter().step_by(7).map(|r| Query { mark: 0, dst: r.prefix.address(), src: None }).collect();
    let begun = Instant::now();
    let found = queries.iter().filter(|q| table.lookup(q).is_ok()).count();
    println!("a lookup: {} ns ({found} found)", begun.elapsed().as_nanos() / queries.len() as u128);
    let begun = Instant::now();
    let changes = 10_000;
    for n in 0..changes {
        let snapshot = table.clone();
        table.remove_cached(&all[n * 31 % all.len()]);
        table.add_cached(&all[n * 17 % all.len()], RoutePosition::Instead).expect("there is room");
        drop(snapshot);
    }
    println!("a change beside a snapshot: {} ns", begun.elapsed().as_nanos() / (2 * changes) as u128);
    let begun = Instant::now();
    let text = routes(&table, Shown::Standard).map_or(0, |t| t.len());
    println!("a list: {:.0?}, {} KiB", begun.elapsed(), text / 1024);
    let begun = Instant::now();
    drop(table);
    println!("an end: {:.0?}", begun.elapsed());
}
