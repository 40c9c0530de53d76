//! The memory held by clients is bounded, whether they send incomplete commands or do not read.

use super::*;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

struct Rig {
    control: Unixctl,
    reactor: Reactor,
    listener: Token,
    dir: testkit::TempDir,
}

impl Rig {
    fn new(limits: Limits) -> Rig {
        let dir = testkit::TempDir::new("unixctl").unwrap();
        let mut reactor = Reactor::new().unwrap();
        let token = reactor.token();
        let mut control = Unixctl::open(&dir.path().join("ctl"), reactor.registry(), token).unwrap();
        control.limits = limits;
        Rig { control, reactor, listener: token, dir }
    }

    fn connect(&mut self) -> (UnixStream, Token) {
        let stream = UnixStream::connect(self.dir.path().join("ctl")).unwrap();
        stream.set_nonblocking(true).unwrap();
        let before: Vec<Token> = self.control.clients.keys().copied().collect();
        self.control.accept(self.listener, &mut self.reactor);
        let new = self.control.clients.keys().find(|token| !before.contains(token));
        (stream, *new.unwrap())
    }

    /// Serves a client until it has no more input; returns the number of its requests, each answered with this
    /// number of bytes.
    fn serve(&mut self, token: Token, answer_bytes: usize) -> usize {
        let (mut served, mut idle) = (0, 0);
        while idle < 2 {
            match self.control.ready(token, &mut self.reactor) {
                Some(request) => {
                    served += 1;
                    self.control.reply(&request, Ok("x".repeat(answer_bytes)), &mut self.reactor);
                }
                None => idle += 1,
            }
        }
        served
    }

    fn half_sent(&self) -> usize {
        self.control.clients.values().map(|c| c.framer.held_bytes()).sum()
    }

    fn unread(&self) -> usize {
        self.control.clients.values().map(Client::unread_bytes).sum()
    }
}

const REQUEST: &[u8] = br#"{"id":1,"method":"version","params":[]}"#;

#[test]
fn half_sent_commands_of_all_clients_are_bounded_before_they_are_taken() {
    let mut rig = Rig::new(Limits { half_sent_bytes: 1 << 20, unread_bytes: 1 << 20 });
    let mut clients: Vec<_> = (0..20).map(|_| rig.connect()).collect();
    let (last, last_token) = rig.connect();
    for _ in 0..8 {
        for (stream, token) in &mut clients {
            // A disconnected client cannot send.
            let _gone = stream.write_all(b"[\"");
            let _gone = stream.write_all(&[b'x'; 50_000]);
            rig.serve(*token, 0);
            assert!(rig.half_sent() <= 1 << 20, "{}", rig.half_sent());
        }
    }
    assert!(rig.control.cut_off > 5, "{}", rig.control.cut_off);
    // A client that sends complete commands is served throughout.
    (&last).write_all(REQUEST).unwrap();
    assert_eq!(rig.serve(last_token, 10), 1);
}

#[test]
fn unread_answers_of_all_clients_are_bounded_before_they_are_kept() {
    let mut rig = Rig::new(Limits { half_sent_bytes: 1 << 20, unread_bytes: 4 << 20 });
    let clients: Vec<_> = (0..20).map(|_| rig.connect()).collect();
    for (stream, token) in &clients {
        let mut stream = stream;
        stream.write_all(&REQUEST.repeat(100)).unwrap();
        // Served until it leaves too much unread.
        assert!((1..10).contains(&rig.serve(*token, 600_000)));
        assert!(rig.unread() <= 4 << 20, "{}", rig.unread());
    }
    assert!(rig.control.cut_off >= 14, "{}", rig.control.cut_off);
    // One reply beyond the limit disconnects the clients that do not read, and is sent.
    let (mut stream, token) = rig.connect();
    stream.write_all(REQUEST).unwrap();
    assert_eq!(rig.serve(token, 5 << 20), 1);
    let mut chunk = vec![0; 1 << 20];
    let mut read = 0;
    while read < 5 << 20 {
        rig.serve(token, 0);
        read += stream.read(&mut chunk).unwrap();
    }
}

#[test]
fn requests_of_one_client_are_answered_one_after_the_other() {
    let mut rig = Rig::new(LIMITS);
    let (mut stream, token) = rig.connect();
    stream.write_all(&REQUEST.repeat(3)).unwrap();
    assert!(rig.control.ready(token, &mut rig.reactor).is_none());
    let first = rig.control.ready(token, &mut rig.reactor).unwrap();
    for _ in 0..5 {
        assert!(rig.control.ready(token, &mut rig.reactor).is_none());
    }
    rig.control.reply(&first, Ok(String::new()), &mut rig.reactor);
    assert_eq!(rig.serve(token, 0), 2);
}
