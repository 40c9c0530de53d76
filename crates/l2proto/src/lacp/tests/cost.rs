//! Processor time of 2,000 ports at the fast rate.
#![allow(clippy::disallowed_methods, reason = "the test measures time")]

use super::*;
use std::time::Instant;

const PORTS: usize = 2000;

/// One second of all ports: each receives a message and sends one. The cost of a message is printed.
#[test]
fn two_thousand_ports_cost_little() {
    let settings = config("active", "fast", 1);
    for members in [1, 8, PORTS] {
        let mut all = Aggregators::default();
        let ids: Vec<SessionId> = (0..PORTS)
            .map(|n| {
                let port = link_port(&format!("bond{}", n / members), &format!("p{n}"), n as u32 + 1, BRIDGE);
                all.put(&port, &settings, 1)
            })
            .collect();
        let payloads: Vec<Vec<u8>> = (0..PORTS).map(|n| message((100, ANOTHER), 7, n as u16, 0x3f)).collect();
        let seconds = 20;
        let (mut sent, mut messages) = (0, 0u64);
        let start = Instant::now();
        for second in 0..seconds {
            for (n, (id, payload)) in ids.iter().zip(&payloads).enumerate() {
                let now_ms = 1000 * (second + 1) + n as u64 / 2;
                all.input(*id, payload, now_ms);
                while all.tick(now_ms, 64, |_, _| sent += 1) {}
                messages += 1;
            }
            while all.take_report().is_some() {}
        }
        let ns = start.elapsed().as_nanos() as u64 / messages;
        println!("{members} members a port: {ns} ns a message, {:.2} % of a core", ns as f64 * 2000.0 / 1e7);
        assert!(sent >= messages, "{sent} of {messages}");
    }
}
