//! Tests of the whole crate, against linear oracles.

mod listeners;
mod neighbours;
mod routes;
mod rules;
mod snoop;

use crate::Prefix;
use std::net::IpAddr;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    let (address, len) = text.split_once('/').unwrap();
    Prefix::new(ip(address), len.parse().unwrap()).unwrap()
}

#[test]
fn prefixes_are_masked_and_mapped_ones_are_ipv4() {
    for (address, len, expected) in [
        ("1.1.2.92", 24, Some("1.1.2.0/24")),
        ("1.1.2.92", 32, Some("1.1.2.92/32")),
        ("1.1.2.92", 0, Some("0.0.0.0/0")),
        ("1.1.2.92", 33, None),
        ("2001:cafe::92", 64, Some("2001:cafe::/64")),
        ("::1", 128, Some("::1/128")),
        ("::1", 129, None),
        ("::ffff:1.1.2.3", 120, Some("1.1.2.0/24")),
        ("::ffff:1.1.2.3", 95, Some("::fffe:0:0/95")),
    ] {
        let made = Prefix::new(ip(address), len).map(|p| p.to_string());
        assert_eq!(made.as_deref(), expected, "{address}/{len}");
    }
    assert!(prefix("10.0.0.0/8").contains(ip("::ffff:10.1.2.3")));
    assert!(!prefix("0.0.0.0/0").contains(ip("::")));
}
