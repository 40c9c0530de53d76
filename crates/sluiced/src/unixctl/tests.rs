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
    assert!(rig.control.counts.cut_off > 5, "{}", rig.control.counts.cut_off);
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
    assert!(rig.control.counts.cut_off >= 14, "{}", rig.control.counts.cut_off);
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

impl Rig {
    /// All that a client can read now.
    fn read(&mut self, stream: &mut UnixStream) -> Vec<u8> {
        let (mut got, mut chunk) = (Vec::new(), vec![0; 1 << 20]);
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            got.extend_from_slice(&chunk[..n]);
        }
        got
    }

    /// The next request of a client.
    fn request(&mut self, token: Token) -> Request {
        (0..10).find_map(|_| self.control.ready(token, &mut self.reactor)).unwrap()
    }
}

#[test]
fn replies_in_parts_are_one_message_and_wait_for_their_reader() {
    let mut rig = Rig::new(LIMITS);
    let (mut stream, token) = rig.connect();
    let text = "a \"line\"\n".repeat(20_000);
    let part = serde_json::to_string(&text).unwrap();
    let contents = &part.as_bytes()[1..part.len() - 1];
    for format in [Format::Text, Format::Json] {
        rig.control.set_format(token, format);
        // The requests behind it wait for its end.
        stream.write_all(&REQUEST.repeat(2)).unwrap();
        let request = rig.request(token);
        let (mut parts, mut got, mut waited) = (0, Vec::new(), 0);
        while parts < 50 {
            match rig.control.room(&request, &mut rig.reactor) {
                Room::Some => {
                    rig.control.reply_part(&request, contents, &mut rig.reactor);
                    parts += 1;
                }
                Room::Full => {
                    waited += 1;
                    assert!(rig.unread() < BUSY_BYTES + part.len() + 100, "{}", rig.unread());
                    got.extend(rig.read(&mut stream));
                    assert!(rig.control.ready(token, &mut rig.reactor).is_none());
                }
                Room::Gone => panic!("it reads"),
            }
        }
        assert!(waited > 3, "{waited}");
        rig.control.reply(&request, Ok("the \"end\"\n".to_string()), &mut rig.reactor);
        while rig.unread() > 0 {
            got.extend(rig.read(&mut stream));
            // No request is taken while much is unread.
            assert!(rig.control.clients.contains_key(&token));
            let client = rig.control.clients.get_mut(&token).unwrap();
            client.conn.flush(rig.reactor.registry()).unwrap();
        }
        got.extend(rig.read(&mut stream));
        let value: Value = serde_json::from_slice(&got).unwrap();
        let whole = Value::from(text.repeat(50) + "the \"end\"\n");
        let expected = match format {
            Format::Text => whole,
            Format::Json => json!({ "reply-format": "plain", "reply": whole }),
        };
        assert!(value["result"] == expected && value["error"].is_null() && value["id"] == 1);
        assert_eq!(rig.serve(token, 10), 1);
        rig.read(&mut stream);
    }
}

#[test]
fn a_reply_in_parts_may_end_early() {
    let mut rig = Rig::new(LIMITS);
    // By an error after its begin: the client must not take it for whole.
    let (mut stream, token) = rig.connect();
    stream.write_all(REQUEST).unwrap();
    let request = rig.request(token);
    rig.control.reply_part(&request, b"some", &mut rig.reactor);
    rig.control.reply(&request, Err("in vain".to_string()), &mut rig.reactor);
    assert_eq!((rig.control.room(&request, &mut rig.reactor), rig.control.counts.cut_off), (Room::Gone, 1));
    assert_eq!(rig.read(&mut stream), br#"{"id":1,"error":null,"result":"some"#);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    // By a client that leaves.
    let (mut stream, token) = rig.connect();
    stream.write_all(REQUEST).unwrap();
    let request = rig.request(token);
    drop(stream);
    while rig.control.room(&request, &mut rig.reactor) == Room::Some {
        rig.control.reply_part(&request, &[b'x'; 1 << 16], &mut rig.reactor);
    }
    assert_eq!(rig.control.room(&request, &mut rig.reactor), Room::Gone);
    assert_eq!(rig.serve(token, 0), 0);
    assert!(rig.control.clients.is_empty());
}

#[test]
fn json_in_parts_is_not_wrapped() {
    let mut rig = Rig::new(LIMITS);
    let (mut stream, token) = rig.connect();
    rig.control.set_format(token, Format::Json);
    stream.write_all(REQUEST).unwrap();
    let request = rig.request(token);
    for part in ["[1,", "{\"a\":", "2}]"] {
        rig.control.reply_json_part(&request, part.as_bytes(), &mut rig.reactor);
    }
    rig.control.reply(&request, Ok(String::new()), &mut rig.reactor);
    let message: Value = serde_json::from_slice(&rig.read(&mut stream)).unwrap();
    assert_eq!(message, json!({ "id": 1, "error": null, "result": [1, { "a": 2 }] }));
}
