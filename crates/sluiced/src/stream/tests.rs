//! Targets.

use super::Endpoint;

#[test]
fn targets_are_parsed() {
    for (target, expected) in [
        ("unix:/a/b", Ok("unix:/a/b")),
        ("punix:x", Ok("punix:x")),
        ("tcp:1.2.3.4", Ok("tcp:1.2.3.4:6653")),
        ("tcp:[::1]:7", Ok("tcp:[::1]:7")),
        ("ptcp:", Ok("ptcp:6653:0.0.0.0")),
        ("ssl:1.2.3.4:5", Ok("ssl:1.2.3.4:5")),
        ("ssl:[::1]", Ok("ssl:[::1]:6653")),
        ("pssl:", Ok("pssl:6653:0.0.0.0")),
        ("pssl:6640:[::1]", Ok("pssl:6640:::1")),
        ("pssl:0:127.0.0.1", Ok("pssl:0:127.0.0.1")),
        ("ssl:", Err("an IP address is missing")),
        ("ssl:host:1", Err("not an address and a port")),
        ("pssl:x", Err("not a port number")),
        ("pssl:1:x", Err("not an IP address")),
        ("tls:1.2.3.4:5", Err("unknown connection method")),
        ("ssl", Err("no connection method")),
    ] {
        let endpoint = Endpoint::parse(target, 6653);
        match expected {
            Ok(text) => {
                let endpoint = endpoint.unwrap();
                assert_eq!(endpoint.to_string(), text);
                assert_eq!(endpoint.is_passive(), target.starts_with('p'));
                assert_eq!(endpoint.is_tls(), target.contains("ssl:"));
            }
            Err(part) => {
                let error = endpoint.unwrap_err().to_string();
                assert!(error.contains(part), "{target}: {error}");
            }
        }
    }
}
