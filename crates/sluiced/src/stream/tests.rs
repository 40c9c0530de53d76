//! Targets, and the end of a stream.

use super::{Conn, Endpoint, Stream};
use crate::reactor::Reactor;
use mio::Events;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

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

/// An act of the peer before a turn.
enum Step {
    Send(&'static [u8]),
    Close,
    Nothing,
}

#[test]
fn input_and_end_arrive_however_they_meet() {
    use Step::{Close, Nothing, Send};
    let some: fn(&'static [u8]) -> Vec<u8> = <[u8]>::to_vec;
    // The steps of each turn, before its events are taken and before it reads; and what the reads return.
    type Case = (&'static [(&'static [Step], &'static [Step])], Vec<Option<(Vec<u8>, bool)>>);
    let cases: [Case; 5] = [
        (&[(&[Send(b"abc")], &[]), (&[Close], &[])], vec![Some((some(b"abc"), false)), None]),
        (&[(&[Send(b"abc"), Close], &[]), (&[Nothing], &[])], vec![Some((some(b"abc"), true)), None]),
        // The end follows the events of its turn, and has one in the next.
        (&[(&[Send(b"abc")], &[Close]), (&[], &[])], vec![Some((some(b"abc"), false)), None]),
        (&[(&[Send(b"abc")], &[Send(b"de")]), (&[Close], &[])], vec![Some((some(b"abcde"), false)), None]),
        // Without input the event shows nothing.
        (
            &[(&[Nothing], &[]), (&[Send(b"x")], &[])],
            vec![Some((some(b""), false)), Some((some(b"x"), false))],
        ),
    ];
    for (n, (turns, expected)) in cases.into_iter().enumerate() {
        let mut reactor = Reactor::new().unwrap();
        let (ours, peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (mut peer, token) = (Some(peer), reactor.token());
        let stream = Stream::Unix(mio::net::UnixStream::from_std(ours));
        let mut conn = Conn::new(stream, reactor.registry(), token).unwrap();
        let mut act = |steps: &[Step]| {
            for step in steps {
                match step {
                    Send(bytes) => peer.as_mut().unwrap().write_all(bytes).unwrap(),
                    Close => peer = None,
                    Nothing => {}
                }
            }
        };
        let mut events = Events::with_capacity(8);
        for ((before, then), expected) in turns.iter().zip(expected) {
            act(before);
            reactor.poll().poll(&mut events, Some(Duration::ZERO)).unwrap();
            let ready = reactor.take_ready(&events);
            // An event for each change, or the read before has told that there may be more.
            assert_eq!(ready.contains(&token), !matches!(before, [Nothing]), "case {n}");
            act(then);
            let got = conn.read(&mut reactor).unwrap().map(|(bytes, more)| (bytes.to_vec(), more));
            assert_eq!(got, expected, "case {n}");
        }
    }
}
