//! Speed of parsing lists of actions: `cargo run --release -p ofp-actions --example parse` prints nanoseconds for
//! each list, the minimum and the median of rounds, the lists in turn.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use flow::text::NoPortNames;
use ofp_actions::text::parse_actions;
use std::hint::black_box;
use std::time::Instant;

const LISTS: [&str; 6] = [
    "load:0x5->NXM_NX_REG1[],resubmit(,3)",
    "output:1",
    "strip_vlan,set_queue:3,pop_queue,exit",
    "push_vlan:0x8100,mod_vlan_vid:5,mod_dl_src:02:00:00:00:00:01,mod_nw_tos:4,dec_ttl,output:7",
    "set_field:10.0.0.1->ip_dst,move:NXM_NX_REG0[]->NXM_NX_REG1[],goto_table:5",
    "drop",
];
const ROUNDS: usize = 200;
const TIMES: usize = 500;

fn main() {
    let mut rounds = vec![Vec::with_capacity(ROUNDS); LISTS.len()];
    for _ in 0..ROUNDS {
        for (list, ns) in LISTS.iter().zip(&mut rounds) {
            let start = Instant::now();
            for _ in 0..TIMES {
                black_box(parse_actions(black_box(list), &NoPortNames)).expect("a list of actions");
            }
            ns.push(start.elapsed().as_nanos() as f64 / TIMES as f64);
        }
    }
    for (list, ns) in LISTS.iter().zip(&mut rounds) {
        ns.sort_by(f64::total_cmp);
        println!("{:7.1} {:7.1}  {list}", ns[0], ns[ROUNDS / 2]);
    }
}
